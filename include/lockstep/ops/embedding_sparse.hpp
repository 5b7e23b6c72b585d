// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>

// The rows of a table that indices name, read and written, and the gradient of an embedding that
// lists only these. Nothing here is recorded for backward.
namespace lockstep::detail {

inline constexpr std::int64_t kNoPadding = -1;

// Row indices[i] of a contiguous table of f32 or f64, for each i.
Tensor take_rows(const Tensor& table, const Tensor& indices);

// Sets row indices[i] of the contiguous table to values[i]. No index comes twice. An index outside
// the table is the stream's IndexError, and nothing is written for it. (Such an index can come
// here: a gradient that lists one row counts as coalesced, so nobody need have waited for the error
// of its lookup.)
void put_rows(const Tensor& table, const Tensor& indices, const Tensor& values);

// The gradient of a weight [rows, width] of which the rows `at` were looked up; `grad` is the
// gradient of the result. The indices are copied, as their owner may change them.
Tensor embedding_sparse_grad(const Tensor& grad, const Tensor& at, std::int64_t rows,
                             std::int64_t padding);

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/embedding_sparse.ipp>
#endif
