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

// Memory that MPI uses while requests are under way.
struct Scratch {
  std::vector<std::byte> buffer;
  std::vector<int> counts;  // the bytes of each rank's share, and its offset in a piece
  std::vector<int> offsets;
  ComparedCall call;
  MPI_Comm copy = MPI_COMM_NULL;  // MPI_Comm_idup writes here while under way

  // The buffer, with at least `bytes`.
  std::byte* room(std::size_t bytes) {
    if (buffer.size() < bytes) buffer.resize(bytes);
    return buffer.data();
  }
};

// The most bytes, over all ranks, that a carrier's buffer holds at once.
inline constexpr std::size_t kPiece = std::size_t{4} << 20;

// Calls piece(offset, length), both in bytes and of whole elements, for pieces of a part, such that
// `parts` pieces fit into kPiece.
template <class Piece>
void in_pieces(const distributed::detail::Call& call, std::size_t parts, const Piece& piece) {
  const std::size_t line = 64 * element_size(call.dtype);
  const std::size_t most = std::max(line, kPiece / parts / line * line);
  for (std::size_t at = 0; at < call.bytes(); at += most) {
    piece(at, std::min(most, call.bytes() - at));
  }
}

}  // namespace lockstep::mpi::detail
