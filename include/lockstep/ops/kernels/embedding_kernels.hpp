// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/tensor/row_kernels.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace lockstep::detail {

// out[i] = weight[indices[i]], row by row; zeros for the index `padding` (none if negative).
template <class T>
struct EmbeddingCall {
  View<const T> weight;
  View<const std::int64_t> indices;
  View<T> out;
  RowsOf of;
  std::size_t rows, width;
  std::int64_t padding;

  void operator()() const {
    for (std::size_t i = 0; i < indices.size; ++i) {
      const std::size_t row = checked_row(of, indices[i], i, rows);
      T* const to = out.data + i * width;
      if (indices[i] == padding) {
        std::fill_n(to, width, T(0));
      } else {
        std::copy_n(weight.data + row * width, width, to);
      }
    }
  }
};

}  // namespace lockstep::detail
