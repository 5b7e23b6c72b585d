// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace lockstep::detail {

// The row that the index at a position names.
inline std::size_t checked_row(std::int64_t index, std::size_t position, std::size_t rows) {
  check<IndexError>(index >= 0 && index < static_cast<std::int64_t>(rows), "embedding: the index ",
                    index, " at position ", position, " is outside the ", rows,
                    " embeddings (expected 0 to ", static_cast<std::int64_t>(rows) - 1, ")");
  return static_cast<std::size_t>(index);
}

// out[i] = weight[indices[i]], row by row; zeros for the index `padding` (none if negative).
template <class T>
struct EmbeddingCall {
  View<const T> weight;
  View<const std::int64_t> indices;
  View<T> out;
  std::size_t rows, width;
  std::int64_t padding;

  void operator()() const {
    for (std::size_t i = 0; i < indices.size; ++i) {
      const std::size_t row = checked_row(indices[i], i, rows);
      T* const to = out.data + i * width;
      if (indices[i] == padding) {
        std::fill_n(to, width, T(0));
      } else {
        std::copy_n(weight.data + row * width, width, to);
      }
    }
  }
};

// out[indices[i]] += grad[i], row by row and in this order, the rest zero; the index `padding`
// (none if negative) is left out.
template <class T>
struct EmbeddingGradCall {
  View<const T> grad;
  View<const std::int64_t> indices;
  View<T> out;
  std::size_t rows, width;
  std::int64_t padding;

  void operator()() const {
    std::fill_n(out.data, out.size, T(0));
    for (std::size_t i = 0; i < indices.size; ++i) {
      const std::size_t row = checked_row(indices[i], i, rows);
      if (indices[i] == padding) continue;
      const T* const from = grad.data + i * width;
      T* const to = out.data + row * width;
      LOCKSTEP_INDEPENDENT
      for (std::size_t j = 0; j < width; ++j) to[j] += from[j];
    }
  }
};

}  // namespace lockstep::detail
