// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <cstddef>
#include <cstdint>

namespace lockstep {

// What a device's allocator has done so far. Bytes count whole blocks, including rounding. Reserved
// bytes count address space, even if it is neither cut into blocks nor resident.
//
// **Torch counterpart.** torch.cuda.memory_stats.
struct MemoryStats {
  std::uint64_t allocations = 0;        // blocks handed out
  std::uint64_t fresh_allocations = 0;  // of these, blocks that were not reused
  std::size_t allocated_bytes = 0;      // in use by tensors
  std::size_t peak_bytes = 0;           // the maximum of allocated_bytes
  std::size_t reserved_bytes = 0;       // taken from the system, in use or kept for reuse
};

}  // namespace lockstep
