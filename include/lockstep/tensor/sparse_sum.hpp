// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/sparse.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>
#include <vector>

// Sums, copies and moves of sparse tensors. Nothing here is recorded for backward.
namespace lockstep::detail {

inline std::int64_t rows_listed(const Tensor& sparse) {
  return sparse_of(sparse, "rows_listed").indices.numel();
}

// The sum of sparse tensors of one shape and dtype: a new tensor on `device` that lists the rows of
// all of them, in order.
inline Tensor concatenated(const std::vector<Tensor>& parts, Device device) {
  const Shape& shape = parts[0].sizes();
  std::int64_t count = 0;
  for (const Tensor& part : parts) count += rows_listed(part);
  const Stream stream = current_stream(device);
  const Tensor indices = empty_on(stream, {1, count}, Dtype::i64);
  const Tensor values = empty_on(stream, shape_of_rows(shape, count), parts[0].dtype());
  std::int64_t at = 0;
  for (const Tensor& part : parts) {
    const SparseImpl& from = sparse_of(part, "concatenated");
    const std::int64_t rows = rows_listed(part);
    if (rows == 0) continue;
    copy_into(part_of(indices, 1, at, rows), from.indices);
    copy_into(part_of(values, 0, at, rows), from.values);
    at += rows;
  }
  const bool coalesced = parts.size() == 1 && parts[0].is_coalesced();
  return make_sparse(indices, values, shape, coalesced);
}

// The sum of two sparse tensors of one shape, dtype and device; coalesced if it would otherwise
// list more rows than the tensor has.
inline Tensor sum_sparse(const Tensor& a, const Tensor& b) {
  const Tensor sum = concatenated({a, b}, a.device());
  return rows_listed(sum) > a.size(0) ? sum.coalesce() : sum;
}

// True if no other handle refers to the memory of this sparse tensor, so that it may be reused.
inline bool is_sole_owner_of_sparse(const Tensor& tensor) {
  const SparseImpl& sparse = sparse_of(tensor, "is_sole_owner");
  const TensorImpl& values = *sparse.values.impl();
  // `values` and the sparse tensor itself each hold the storage.
  return tensor.impl().use_count() == 1 && sparse.values.impl().use_count() == 1 &&
         values.storage.use_count() == 2;
}

}  // namespace lockstep::detail
