// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

// Kernels that sum and write the rows of a matrix that indices name. Those in
// ops/kernels/index_kernels.hpp read them.
namespace lockstep::detail {

// Whose indices these are, for messages. The labels of a loss name classes.
enum class RowsOf : unsigned {
  embedding,
  sparse_tensor,
  index_select,
  gather,
  nll_loss,
  cross_entropy
};

// `index` as a row number; an IndexError that names `position` if there is no such row.
inline std::size_t checked_row(RowsOf of, std::int64_t index, std::size_t position,
                               std::size_t rows) {
  if (index >= 0 && index < static_cast<std::int64_t>(rows)) [[likely]]
    return static_cast<std::size_t>(index);
  constexpr const char* kOwners[] = {"embedding", "sparse tensor", "index_select",
                                     "gather",    "nll_loss",      "cross_entropy"};
  constexpr const char* kRows[] = {" embeddings", " rows",    " elements",
                                   " elements",   " classes", " classes"};
  const auto which = static_cast<unsigned>(of);
  const bool label = of >= RowsOf::nll_loss;
  fail<IndexError>(kOwners[which], label ? ": the label " : ": the index ", index,
                   label ? " of row " : " at position ", position, " is outside the ", rows,
                   kRows[which], " (expected 0 to ", static_cast<std::int64_t>(rows) - 1, ")");
}

// out[indices[i]] += grad[i / repeats], row by row, in this order; other rows are zero. The index
// `padding` (none if negative) is left out.
template <class T>
struct SumRowsCall {
  RowsOf of;
  View<const T> grad;
  View<const std::int64_t> indices;
  View<T> out;
  std::size_t rows, width;
  std::int64_t padding = -1;
  std::size_t repeats = 1;  // how many indices share a row of the gradient; 1 on GPUs

  void operator()() const {
    std::fill_n(out.data, out.size, T(0));
    for (std::size_t i = 0; i < indices.size; ++i) {
      const std::size_t row = checked_row(of, indices[i], i, rows);
      if (indices[i] == padding) continue;
      const T* const from = grad.data + i / repeats * width;
      T* const to = out.data + row * width;
      LOCKSTEP_INDEPENDENT
      for (std::size_t j = 0; j < width; ++j) to[j] += from[j];
    }
  }
};

// out[indices[i]] = values[i], row by row. No index occurs twice.
template <class T>
struct PutRowsCall {
  View<const T> values;
  View<const std::int64_t> indices;
  View<T> out;
  std::size_t rows, width;

  void operator()() const {
    for (std::size_t i = 0; i < indices.size; ++i) {
      const std::size_t row = checked_row(RowsOf::sparse_tensor, indices[i], i, rows);
      std::copy_n(values.data + i * width, width, out.data + row * width);
    }
  }
};

}  // namespace lockstep::detail
