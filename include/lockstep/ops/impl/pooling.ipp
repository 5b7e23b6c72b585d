// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/saved.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/call_floating.hpp>
#include <lockstep/ops/index.hpp>
#include <lockstep/ops/kernels/pooling_kernels.hpp>
#include <lockstep/ops/pooling.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/ops/size2d.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/shape.hpp>

#include <cstdint>
#include <limits>
#include <type_traits>

namespace lockstep::detail {

// Moves elements from the pooled shape to the input's, by fixed indices. Its derivative moves them
// back.
struct PoolScatterOp {
  static constexpr const char* name = "max_pool2d_scatter";
  Tensor indices;
  Shape shape;  // of the result
  PoolGeometry g;

  Tensor forward(const Tensor& tensor) const {
    return call_floating<PoolScatterCall>(name, shape, tensor, indices, TheResult(), g);
  }
  Tensor backward(const Backward&, const Tensor& grad) const {
    const Tensor planes = grad.reshape({g.planes, g.in_plane()});
    return gather(planes, 1, indices.reshape({g.planes, g.out_plane()})).reshape(indices.sizes());
  }
};

inline Shape pooled_shape(const Tensor& x, const PoolGeometry& g) {
  Shape pooled = x.sizes();
  pooled[pooled.size() - 2] = g.out_height;
  pooled[pooled.size() - 1] = g.out_width;
  return pooled;
}

struct MaxPoolOp {
  static constexpr const char* name = "max_pool2d";
  PoolGeometry g;
  Tensor indices = {};
  Shape shape = {};

  Tensor forward(const Tensor& x) {
    shape = x.sizes();
    const Shape pooled = pooled_shape(x, g);
    indices = empty_on(current_stream(x.device()), pooled, Dtype::i32);
    return call_floating<MaxPoolCall>(name, pooled, x, TheResult(), AlsoWritten{indices}, g);
  }

  Tensor backward(const Backward&, const Tensor& grad) const {
    return apply(PoolScatterOp{indices, shape, g}, grad);
  }
};

// The means of windows, and their transpose: each is the other's derivative.
template <bool Spread>
struct AvgPoolOp {
  static constexpr const char* name = Spread ? "avg_pool2d_backward" : "avg_pool2d";
  template <class T>
  using Call = std::conditional_t<Spread, AvgSpreadCall<T>, AvgPoolCall<T>>;

  Shape shape;  // of the result
  PoolGeometry g;
  bool include_pad;
  Shape from = {};

  Tensor forward(const Tensor& tensor) {
    from = tensor.sizes();
    return call_floating<Call>(name, shape, tensor, TheResult(), g, include_pad);
  }

  Tensor backward(const Backward&, const Tensor& grad) const {
    return apply(AvgPoolOp<!Spread>{from, g, include_pad}, grad);
  }
};

LOCKSTEP_INLINE void check_pool_sizes(const char* name, Size2d kernel, Size2d stride,
                                      Size2d padding) {
  constexpr std::int64_t kMost = INT64_MAX / 2;  // this plus an image does not overflow
  check<ValueError>(
      kernel.height >= 1 && kernel.width >= 1 && kernel.height <= kMost && kernel.width <= kMost,
      name, ": expected a kernel of at least 1 and at most ", kMost, ", got ", kernel);
  check<ValueError>(stride.height >= 1 && stride.width >= 1, name,
                    ": expected a stride of at least 1, got ", stride);
  check<ValueError>(padding.height >= 0 && padding.width >= 0 &&
                        padding.height <= kernel.height / 2 && padding.width <= kernel.width / 2,
                    name, ": expected a padding from 0 to half the kernel ", kernel, ", got ",
                    padding);
}

// The geometry of windows over x. Throws unless it is valid.
inline PoolGeometry pool_geometry(const char* name, const Tensor& x, Size2d kernel, Size2d stride,
                                  Size2d padding) {
  check_defined(name, "the input", x);
  check<ShapeError>(x.dim() == 3 || x.dim() == 4, name,
                    ": expected an input of shape [batch, channels, height, width] or "
                    "[channels, height, width], got ",
                    x.sizes());
  check_pool_sizes(name, kernel, stride, padding);
  const std::int64_t height = x.size(-2) + 2 * padding.height;
  const std::int64_t width = x.size(-1) + 2 * padding.width;
  check<ShapeError>(
      x.size(-2) > 0 && x.size(-1) > 0 && kernel.height <= height && kernel.width <= width, name,
      ": a kernel of ", kernel, " does not fit an input of shape ", x.sizes(), ", padded to ",
      Shape{height, width});
  const std::int64_t planes = x.dim() == 4 ? x.size(0) * x.size(1) : x.size(0);
  return {planes,
          x.size(-2),
          x.size(-1),
          (height - kernel.height) / stride.height + 1,
          (width - kernel.width) / stride.width + 1,
          kernel.height,
          kernel.width,
          stride.height,
          stride.width,
          padding.height,
          padding.width};
}

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE Tensor max_pool2d(const Tensor& x, Size2d kernel, Size2d stride, Size2d padding) {
  const auto g = detail::pool_geometry("max_pool2d", x, kernel, stride, padding);
  check<ShapeError>(g.in_height <= std::numeric_limits<std::int32_t>::max() / g.in_width,
                    "max_pool2d: an input of shape ", x.sizes(), " has too large a plane");
  return apply(detail::MaxPoolOp{g}, x);
}

LOCKSTEP_INLINE Tensor avg_pool2d(const Tensor& x, Size2d kernel, Size2d stride, Size2d padding,
                                  bool count_include_pad) {
  const auto g = detail::pool_geometry("avg_pool2d", x, kernel, stride, padding);
  return apply(detail::AvgPoolOp<false>{detail::pooled_shape(x, g), g, count_include_pad}, x);
}

}  // namespace lockstep
