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

// Row indices[i] of the contiguous table becomes values[i]. No index comes twice. One outside is
// the stream's IndexError, and nothing is written for it: a gradient of one row counts as
// coalesced, so nobody may have waited for that error yet.
void put_rows(const Tensor& table, const Tensor& indices, const Tensor& values);

// The gradient of a weight [rows, width] whose rows `at` were looked up, where that of the result
// is `grad`. The indices are copied, as their owner may change them.
Tensor embedding_sparse_grad(const Tensor& grad, const Tensor& at, std::int64_t rows,
                             std::int64_t padding);

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/embedding_sparse.ipp>
#endif
