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
    // Without elements to take their indices are still the caller's.
    for (std::size_t k = 0; out.size == 0 && k < indices.size; ++k) {
      (void)checked_row(of, indices[k], k, count);
    }
    T* to = out.data;
    const T* from = in.data;
    for (std::size_t next = 0; to != out.data + out.size; from += count * inner) {
      for (std::size_t k = 0; k < taken; ++k) {
        if (!for_each && inner > 1) {
          to = std::copy_n(from + checked_row(of, indices[k], k, count) * inner, inner, to);
          continue;
        }
        for (std::size_t i = 0; i < inner; ++i) {
          const std::size_t place = for_each ? next++ : k;
          *to++ = from[checked_row(of, indices[place], place, count) * inner + i];
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
