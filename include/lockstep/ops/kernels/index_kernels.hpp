// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/tensor/row_kernels.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace lockstep::detail {

// How indices are taken along the middle one of [outer, count, inner]: `taken` of them, which all
// slices share, or, if there is one `for_each` element of the result, so many in each.
struct Taking {
  RowsOf of;
  std::size_t count;
  std::size_t inner;
  std::size_t taken;
  bool for_each;
};

// out[o, k, i] = in[o, index, i], of elements of any type.
template <class T>
struct TakeCall {
  View<const T> in;
  View<const std::int64_t> indices;
  View<T> out;
  Taking taking;

  void operator()() const {
    const auto [of, count, inner, taken, for_each] = taking;
    // Those that all slices share; without elements to take, those of each are still the caller's.
    for (std::size_t k = 0; (!for_each || out.size == 0) && k < indices.size; ++k) {
      (void)checked_row(of, indices[k], k, count);
    }
    T* to = out.data;
    const T* from = in.data;
    for (std::size_t next = 0; to != out.data + out.size; from += count * inner) {
      if (for_each) {
        for (std::size_t k = 0; k < taken; ++k) {
          for (std::size_t i = 0; i < inner; ++i, ++next) {
            *to++ = from[checked_row(of, indices[next], next, count) * inner + i];
          }
        }
      } else if (inner == 1) {
        for (std::size_t k = 0; k < taken; ++k) to[k] = from[indices[k]];
        to += taken;
      } else {
        for (std::size_t k = 0; k < taken; ++k) {
          to = std::copy_n(from + static_cast<std::size_t>(indices[k]) * inner, inner, to);
        }
      }
    }
  }
};

// out[o, index, i] += grad[o, k, i], with an index for each element and in the order of k.
template <class T>
struct AddTakenCall {
  View<const T> grad;
  View<const std::int64_t> indices;
  View<T> out;
  Taking taking;

  void operator()() const {
    T* to = out.data;
    for (std::size_t place = 0; place < grad.size; to += taking.count * taking.inner) {
      for (std::size_t k = 0; k < taking.taken; ++k) {
        for (std::size_t i = 0; i < taking.inner; ++i, ++place) {
          const std::size_t at = checked_row(taking.of, indices[place], place, taking.count);
          to[at * taking.inner + i] += grad[place];
        }
      }
    }
  }
};

}  // namespace lockstep::detail
