// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/host_device.hpp>
#include <lockstep/cuda/launch/loops.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/walk.hpp>

#include <cstddef>
#include <cstdint>

namespace lockstep::cuda {

struct Division {
  std::size_t quotient, remainder;
};

// nvcc itself asks whether both have 32 bits, which a GPU divides several times as fast.
LOCKSTEP_HD inline Division divided(std::size_t number, std::size_t by) {
  return {number / by, number % by};
}

// Where the elements of N operands are, in elements from their first ones.
template <std::size_t N>
struct Offsets {
  std::int64_t of[N];
};

// A Walk as a kernel can take it: the operands' offsets at any place of it, in row-major order.
template <std::size_t N>
struct StridedIndex {
  std::size_t dims;
  std::size_t sizes[Shape::kMaxDims];
  std::int64_t strides[N][Shape::kMaxDims];

  LOCKSTEP_HD Offsets<N> at(std::size_t place) const {
    Offsets<N> offsets{};
    LOCKSTEP_UNROLL(1)
    for (std::size_t d = dims; d-- > 0;) {
      const Division step = d == 0 ? Division{0, place} : divided(place, sizes[d]);
      for (std::size_t n = 0; n < N; ++n) {
        offsets.of[n] += static_cast<std::int64_t>(step.remainder) * strides[n][d];
      }
      place = step.quotient;
    }
    return offsets;
  }

  // Of operand n: whether the places 4i to 4i + 3 are, for each i, the same element or four side by
  // side from a multiple of four on.
  bool has_fours(std::size_t n) const {
    if (dims == 0 || sizes[dims - 1] % 4 != 0) return false;
    if (strides[n][dims - 1] == 0) return true;
    for (std::size_t d = 0; d + 1 < dims; ++d) {
      if (strides[n][d] % 4 != 0) return false;
    }
    return strides[n][dims - 1] == 1;
  }

  // Of operand n: whether neighbouring places of a row are the same element.
  LOCKSTEP_HD bool repeats(std::size_t n) const { return strides[n][dims - 1] == 0; }
};

template <std::size_t N>
StridedIndex<N> strided_index(const detail::Walk<N>& walk) {
  StridedIndex<N> index{};
  index.dims = walk.sizes.size();
  for (std::size_t d = 0; d < index.dims; ++d) {
    index.sizes[d] = static_cast<std::size_t>(walk.sizes[d]);
    for (std::size_t n = 0; n < N; ++n) index.strides[n][d] = walk.strides[n][d];
  }
  return index;
}

}  // namespace lockstep::cuda
