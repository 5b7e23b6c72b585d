// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/autocast.hpp>
#include <lockstep/backend/launch.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/autocast.hpp>
#include <lockstep/ops/compare.hpp>
#include <lockstep/ops/expand.hpp>
#include <lockstep/ops/kernels/axis.hpp>
#include <lockstep/ops/kernels/reduce_kernels.hpp>
#include <lockstep/ops/operands.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/ops/where.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/half.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace lockstep::detail {

// The dimensions to reduce (all if none is listed), and the resulting shape.
struct DimReduction {
  DimSet over;
  Shape shape;
  double count = 1;  // the elements reduced to one
};

inline DimReduction make_reduction(const char* operation, const Shape& from, const Shape& dims,
                                   bool keepdim) {
  DimReduction reduction;
  for (const std::int64_t dim : dims) {
    const std::size_t at = wrap_dim(dim, from.size());
    check<ValueError>(!reduction.over[at], operation, ": dimension ", at,
                      " appears more than once in the list of dims ", dims);
    reduction.over[at] = true;
  }
  if (dims.empty()) reduction.over.set();
  for (std::size_t d = 0; d < from.size(); ++d) {
    if (!reduction.over[d]) {
      reduction.shape.push_back(from[d]);
      continue;
    }
    reduction.count *= static_cast<double>(from[d]);
    if (keepdim) reduction.shape.push_back(1);
  }
  return reduction;
}

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE Tensor Tensor::sum(const Shape& dims, bool keepdim) const {
  if (is_autocast_enabled()) {
    return detail::autocast_to_f32(
        [&](const Tensor& converted) { return converted.sum(dims, keepdim); }, *this);
  }
  detail::check_defined("sum", "the tensor", *this);
  const detail::DimReduction to = detail::make_reduction("sum", sizes(), dims, keepdim);
  if (!is_floating_point(dtype())) return detail::sum_integers(*this, to.over, to.shape);
  return detail::sum_dims(*this, to.over, to.shape);
}

LOCKSTEP_INLINE Tensor Tensor::mean(const Shape& dims, bool keepdim) const {
  detail::check_floating("mean", *this);
  const detail::DimReduction to = detail::make_reduction("mean", sizes(), dims, keepdim);
  return detail::sum_dims(*this, to.over, to.shape, to.count);
}

LOCKSTEP_INLINE Tensor var(const Tensor& x, const Shape& dims, double correction, bool keepdim) {
  detail::check_floating("var", x);
  if (detail::is_half_precision(x.dtype())) {
    return var(x.to(Dtype::f32), dims, correction, keepdim).to(x.dtype());
  }
  const detail::DimReduction to = detail::make_reduction("var", x.sizes(), dims, keepdim);
  const Tensor difference = x - mean(x, dims, true);
  return detail::sum_dims(square(difference), to.over, to.shape,
                          std::max(0.0, to.count - correction));
}

LOCKSTEP_INLINE Tensor std(const Tensor& x, const Shape& dims, double correction, bool keepdim) {
  detail::check_floating("std", x);
  if (x.dtype() != Dtype::f64) {  // the variance may be too large, or too small, for the dtype
    return std(x.to(Dtype::f64), dims, correction, keepdim).to(x.dtype());
  }
  const Tensor square = var(x, dims, correction, keepdim);
  const Tensor none = eq(square, 0);  // the gradient is 0 there, as in torch
  return where(none, 0, sqrt(where(none, 1, square)));
}

LOCKSTEP_INLINE Tensor detail::argmax(const char* name, const Tensor& x, std::int64_t dim,
                                      bool keepdim) {
  check_defined(name, "the tensor", x);
  const Shape& from = x.sizes();
  const std::size_t at = wrap_dim(dim, from.size());
  const detail::Axis axis(from.empty() ? Shape{1} : from, at);
  check<IndexError>(axis.count > 0, name, ": expected dimension ", at,
                    " to have a size other than 0 in shape ", from);
  const Tensor source = detail::packed_wide(x);
  const Stream stream = current_stream(x.device());
  Tensor result = detail::empty_on(stream, detail::make_reduction(name, from, {dim}, keepdim).shape,
                                   Dtype::i64);
  dispatch_numeric(source.dtype(), name, [&]<class T>(T) {
    launch_call(stream, detail::ArgmaxCall<T>{detail::input<T>(source),
                                              detail::output<std::int64_t>(result, stream), axis});
  });
  return result;
}

LOCKSTEP_INLINE Tensor argmax(const Tensor& x, std::int64_t dim, bool keepdim) {
  return detail::argmax("argmax", x, dim, keepdim);
}

}  // namespace lockstep
