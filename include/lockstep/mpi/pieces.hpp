// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/group/call.hpp>
#include <lockstep/tensor/dtype.hpp>

#include <algorithm>
#include <cstddef>

namespace lockstep::mpi::detail {

// The most bytes, of all ranks together, that go through a carrier's buffer at once.
inline constexpr std::size_t kPiece = std::size_t{4} << 20;

// Calls piece(first element, number of elements) for pieces of which `parts` fit into kPiece.
template <class Piece>
void in_pieces(const distributed::detail::Call& call, std::size_t parts, const Piece& piece) {
  const std::size_t element = element_size(call.dtype);
  const std::size_t most = std::max<std::size_t>(64, kPiece / parts / element / 64 * 64);
  for (std::size_t at = 0; at < call.count; at += most) {
    piece(at, std::min(most, call.count - at));
  }
}

}  // namespace lockstep::mpi::detail
