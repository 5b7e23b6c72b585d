// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/row_kernels.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/sparse.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep::detail {

LOCKSTEP_INLINE const SparseImpl& sparse_of(const Tensor& tensor, const char* member) {
  check<ValueError>(tensor.is_sparse(), member, ": expected a sparse tensor, got a dense one of ",
                    "shape ", tensor.sizes());
  return static_cast<const SparseImpl&>(*tensor.impl());
}

LOCKSTEP_INLINE std::size_t row_width(const Shape& shape) {
  std::size_t width = 1;
  for (std::size_t d = 1; d < shape.size(); ++d) width *= static_cast<std::size_t>(shape[d]);
  return width;
}

LOCKSTEP_INLINE Shape shape_of_rows(Shape shape, std::int64_t count) {
  shape[0] = count;
  return shape;
}

LOCKSTEP_INLINE Tensor make_sparse(const Tensor& indices, Tensor values, const Shape& shape,
                                   bool coalesced) {
  auto impl = std::make_shared<SparseImpl>();
  impl->storage = values.impl()->storage;
  impl->version = values.impl()->version;
  impl->shape = shape;
  impl->dtype = values.dtype();
  impl->numel = numel(shape);
  impl->sparse = true;
  impl->inference = values.impl()->inference;
  const Shape listed{1, indices.numel()};
  impl->indices = make_view(indices, listed, contiguous_strides(listed), indices.impl()->offset);
  impl->values = std::move(values);
  impl->coalesced = coalesced || impl->indices.numel() < 2;
  return Tensor(std::shared_ptr<TensorImpl>(std::move(impl)));
}

LOCKSTEP_INLINE Tensor empty_sparse(const Shape& shape, const TensorOptions& options) {
  const Stream stream = current_stream(options.device);
  return make_sparse(empty_on(stream, {0}, Dtype::i64),
                     empty_on(stream, shape_of_rows(shape, 0), options.dtype), shape, true);
}

LOCKSTEP_INLINE std::vector<std::int64_t> numbers_of(const Tensor& tensor) {
  const Tensor host = contiguous_on_host(tensor);
  const std::int64_t* const first = host.const_data_ptr<std::int64_t>();
  return {first, first + host.numel()};
}

// A dense tensor of `shape` whose row r is the sum of all values[i] whose indices[i] is r, in the
// order of i.
inline Tensor sum_rows(const Tensor& values, const Tensor& indices, const Shape& shape) {
  const Stream stream = current_stream(values.device());
  return dispatch_floating(values.dtype(), "to_dense", [&]<class T>(T) {
    Tensor out = empty_on(stream, shape, dtype_of<T>);
    launch_call(stream, SumRowsCall<T>{RowsOf::sparse_tensor, input<T>(values),
                                       input<std::int64_t>(indices), output<T>(out, stream),
                                       static_cast<std::size_t>(shape[0]), row_width(shape)});
    return out;
  });
}

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE bool Tensor::is_coalesced() const {
  return detail::sparse_of(*this, "is_coalesced").coalesced;
}

LOCKSTEP_INLINE Tensor Tensor::coalesce() const {
  const detail::SparseImpl& sparse = detail::sparse_of(*this, "coalesce");
  if (sparse.coalesced) return *this;
  const std::vector<std::int64_t> listed = detail::numbers_of(sparse.indices);
  std::vector<std::int64_t> rows = listed;
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  std::vector<std::int64_t> places;
  places.reserve(listed.size());
  for (const std::int64_t row : listed) {
    places.push_back(std::lower_bound(rows.begin(), rows.end(), row) - rows.begin());
  }
  const Tensor at = tensor(rows, device());
  const Tensor values = detail::sum_rows(sparse.values, tensor(places, device()),
                                         detail::shape_of_rows(sizes(), at.numel()));
  return detail::make_sparse(at, values, sizes(), true);
}

LOCKSTEP_INLINE Tensor Tensor::indices() const {
  const detail::SparseImpl& sparse = detail::sparse_of(*this, "indices");
  check<ValueError>(sparse.coalesced,
                    "Cannot get indices on an uncoalesced tensor, please call .coalesce() first");
  return detail::make_view(sparse.indices);
}

LOCKSTEP_INLINE Tensor Tensor::values() const {
  const detail::SparseImpl& sparse = detail::sparse_of(*this, "values");
  check<ValueError>(sparse.coalesced,
                    "Cannot get values on an uncoalesced tensor, please call .coalesce() first");
  return detail::make_view(sparse.values);
}

LOCKSTEP_INLINE Tensor Tensor::to_dense() const {
  if (!is_sparse()) return *this;
  const detail::SparseImpl& sparse = detail::sparse_of(*this, "to_dense");
  return detail::sum_rows(sparse.values, sparse.indices, sizes());
}

LOCKSTEP_INLINE Tensor sparse_coo_tensor(const Tensor& indices, const Tensor& values,
                                         const Shape& size) {
  constexpr const char* kName = "sparse_coo_tensor: ";
  check<DtypeError>(indices.dtype() == Dtype::i64, kName, "expected indices of i64, got ",
                    indices.dtype());
  check<DtypeError>(values.dtype() == Dtype::f32 || values.dtype() == Dtype::f64, kName,
                    "expected values of f32 or f64, got ", values.dtype());
  check<DeviceError>(indices.device() == values.device(), kName, "the indices are on ",
                     indices.device(), ", but the values on ", values.device());
  check<AutogradError>(!values.impl()->requires_grad, kName,
                       "the values require grad, which is not recorded: use detach()");
  check<ShapeError>(indices.dim() == 2 && indices.size(0) == 1, kName,
                    "expected indices of shape [1, n], one sparse dimension, got ",
                    indices.sizes());
  const std::int64_t count = indices.size(1);
  (void)numel(size);  // a ShapeError for a negative size
  check<ShapeError>(!size.empty() && values.sizes() == detail::shape_of_rows(size, count), kName,
                    "values of shape ", values.sizes(), " are not the ", count,
                    " rows of a tensor of ", "shape ", size, " that the indices list");
  for (const std::int64_t row : detail::numbers_of(indices)) {
    check<IndexError>(row >= 0 && row < size[0], kName, "the index ", row, " is outside the ",
                      size[0], " rows");
  }
  return detail::make_sparse(detail::copy_as(indices, indices.options()),
                             detail::copy_as(values, values.options()), size, false);
}

LOCKSTEP_INLINE void expect_sparse_gradient(const Tensor& leaf, bool expected) {
  check<ValueError>(leaf.defined(), "expect_sparse_gradient: the tensor is undefined");
  check<ShapeError>(leaf.dim() > 0,
                    "expect_sparse_gradient: a tensor without dimensions has no rows");
  leaf.impl()->sparse_gradient = expected;
}

}  // namespace lockstep
