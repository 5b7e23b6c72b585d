// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/mpi/compared_call.hpp>

#include <cstddef>
#include <vector>

namespace lockstep::mpi::detail {

// What MPI reads and writes while requests are under way.
struct Scratch {
  std::vector<std::byte> buffer;
  std::vector<int> counts;  // for each rank, the bytes of its share, and where it lies in a piece
  std::vector<int> offsets;
  ComparedCall call;

  // The buffer, with at least so many bytes.
  std::byte* room(std::size_t bytes) {
    if (buffer.size() < bytes) buffer.resize(bytes);
    return buffer.data();
  }
};

}  // namespace lockstep::mpi::detail
