// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/backend/launch.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/index.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/row_kernels.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/sparse.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

// Reads and writes the rows of a table that indices name, and makes the gradient of an embedding
// that lists only these. Nothing here is recorded for backward.
namespace lockstep::detail {

inline constexpr std::int64_t kNoPadding = -1;

// Sets row indices[i] of the contiguous table to values[i]. No index occurs twice. For an index
// outside the table nothing is written, and the stream reports an IndexError. (The lookup's own
// error may not have been waited for: a gradient of one row counts as coalesced.)
inline void put_rows(const Tensor& table, const Tensor& indices, const Tensor& values) {
  const Stream stream = current_stream(table.device());
  dispatch_floating(table.dtype(), "put_rows", [&]<class T>(T) {
    launch_call(
        stream,
        PutRowsCall<T>{input<T>(values), input<std::int64_t>(indices), output<T>(table, stream),
                       static_cast<std::size_t>(table.size(0)), row_width(table.sizes())});
  });
}

// The rows [n, …] of a table that the indices [1, n] of a sparse gradient name.
inline Tensor rows_of(const Tensor& table, const Tensor& indices) {
  const Tensor listed = packed(indices);
  return take(RowsOf::sparse_tensor, table, 0,
              make_view(listed, {listed.numel()}, {1}, listed.impl()->offset));
}

// The gradient of a weight [rows, width] of which the rows `at` were looked up; `grad` is the
// gradient of the result. The indices are copied, since their owner may change them.
inline Tensor embedding_sparse_grad(const Tensor& grad, const Tensor& at, std::int64_t rows,
                                    std::int64_t padding) {
  check<AutogradError>(!is_grad_enabled(),
                       "embedding: a sparse gradient has no derivative: use sparse = false where "
                       "backward is called with create_graph = true");
  const std::int64_t width = grad.sizes().back();
  const Tensor packed_grad = packed(grad);
  Tensor values =
      make_view(packed_grad, {at.numel(), width}, {width, 1}, packed_grad.impl()->offset);
  if (padding == kNoPadding) {
    return make_sparse(copy_as(at, at.options()), values, {rows, width}, false);
  }
  std::vector<std::int64_t> kept;
  std::vector<std::int64_t> places;
  const std::vector<std::int64_t> numbers = numbers_of(at);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (numbers[i] == padding) continue;
    kept.push_back(numbers[i]);
    places.push_back(static_cast<std::int64_t>(i));
  }
  if (kept.size() < numbers.size()) {
    values = take(RowsOf::sparse_tensor, values, 0, tensor(places, grad.device()));
  }
  return make_sparse(tensor(kept, grad.device()), values, {rows, width}, false);
}

}  // namespace lockstep::detail
