// SPDX-License-Identifier: Apache-2.0
//
// For benchmarks of results that lie in memory fresh from the system.
#pragma once

#include <lockstep/backend/streams.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <vector>

namespace fresh_memory {

// Ones, in memory of their own: what does not fill its huge pages would share one with results,
// which could then not be given back.
inline lockstep::Tensor filled(std::int64_t bytes, lockstep::Device device) {
  constexpr auto kFloat = static_cast<std::int64_t>(sizeof(float));
  constexpr std::int64_t kHugePage = std::int64_t{2} << 20;
  const std::int64_t own = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  return lockstep::ones({own / kFloat}, {.device = device}).narrow(0, 0, bytes / kFloat);
}

// Gives back what the devices and plain `cpu` keep; ends the program where they still keep any,
// which would be taken for fresh.
inline void give_back(std::vector<lockstep::Device> devices) {
  devices.emplace_back();
  for (const lockstep::Device device : devices) {
    lockstep::empty_cache(device);
    const lockstep::MemoryStats stats = lockstep::memory_stats(device);
    if (stats.reserved_bytes == stats.allocated_bytes) continue;
    std::cerr << device << " keeps " << stats.reserved_bytes - stats.allocated_bytes << " bytes\n";
    std::exit(EXIT_FAILURE);
  }
}

}  // namespace fresh_memory
