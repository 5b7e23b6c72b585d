// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/group/call.hpp>
#include <lockstep/mpi/api.hpp>
#include <lockstep/mpi/compared_call.hpp>
#include <lockstep/tensor/dtype.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace lockstep::mpi::detail {

// What MPI reads and writes while requests are under way.
struct Scratch {
  std::vector<std::byte> buffer;
  std::vector<int> counts;  // for each rank, the bytes of its share, and where it lies in a piece
  std::vector<int> offsets;
  ComparedCall call;
  MPI_Comm copy = MPI_COMM_NULL;  // MPI_Comm_idup writes here until its request has ended

  // The buffer, with at least so many bytes.
  std::byte* room(std::size_t bytes) {
    if (buffer.size() < bytes) buffer.resize(bytes);
    return buffer.data();
  }
};

// The most bytes, of all ranks together, that go through a carrier's buffer at once.
inline constexpr std::size_t kPiece = std::size_t{4} << 20;

// Calls piece(where it begins, its length), both in bytes, for pieces of a part of which `parts`
// fit into kPiece. They are of whole elements.
template <class Piece>
void in_pieces(const distributed::detail::Call& call, std::size_t parts, const Piece& piece) {
  const std::size_t line = 64 * element_size(call.dtype);
  const std::size_t most = std::max(line, kPiece / parts / line * line);
  for (std::size_t at = 0; at < call.bytes(); at += most) {
    piece(at, std::min(most, call.bytes() - at));
  }
}

}  // namespace lockstep::mpi::detail
