// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/function.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/pooling_kernels.hpp>
#include <lockstep/ops/size2d.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/half.hpp>

#include <cstdint>
#include <limits>

namespace lockstep {

namespace detail {

// Between the pooled shape and the shape before, along fixed indices: each way is linear, and the
// other one's derivative.
template <bool Scatter>
struct PoolRoute {
  static constexpr const char* name = Scatter ? "max_pool2d_scatter" : "max_pool2d_gather";
  Tensor indices;
  Shape shape;  // of the result
  PoolGeometry g;
  Shape from = {};

  Tensor forward(const Tensor& tensor) {
    from = tensor.sizes();
    const Tensor in = packed_wide(tensor);
    const Stream stream = current_stream(tensor.device());
    return compute_floating(tensor.dtype(), name, [&]<class T>(T) {
      Tensor out = empty_on(stream, shape, dtype_of<T>);
      const View<const T> values = input<T>(in);
      const View<const std::int32_t> at = input<std::int32_t>(indices);
      const View<T> result = output<T>(out, stream);
      if constexpr (Scatter) {
        launch_call(stream, PoolScatterCall<T>{values, at, result, g});
      } else {
        launch_call(stream, PoolGatherCall<T>{values, at, result, g});
      }
      return out;
    });
  }

  Tensor backward(const Backward&, const Tensor& grad) const {
    return apply(PoolRoute<!Scatter>{indices, from, g}, grad);
  }
};

struct MaxPoolOp {
  static constexpr const char* name = "max_pool2d";
  PoolGeometry g;
  Tensor indices = {};
  Shape shape = {};

  Tensor forward(const Tensor& x) {
    shape = x.sizes();
    const Tensor in = packed_wide(x);
    const Stream stream = current_stream(x.device());
    Shape pooled = shape;
    pooled[pooled.size() - 2] = g.out_height;
    pooled[pooled.size() - 1] = g.out_width;
    indices = empty_on(stream, pooled, Dtype::i32);
    return compute_floating(x.dtype(), name, [&]<class T>(T) {
      Tensor out = empty_on(stream, pooled, dtype_of<T>);
      launch_call(stream, MaxPoolCall<T>{input<T>(in), output<T>(out, stream),
                                         output<std::int32_t>(indices, stream), g});
      return out;
    });
  }

  Tensor backward(const Backward&, const Tensor& grad) const {
    return apply(PoolRoute<true>{indices, shape, g}, grad);
  }
};

}  // namespace detail

// The greatest element of each window of `kernel`, the windows `stride` apart, for images of shape
// [batch, channels, height, width] or [channels, height, width]. What the padding adds is less than
// any element; a window that would reach past it is left out.
//
// **Torch counterpart.** torch.nn.functional.max_pool2d, without dilation and ceil_mode.
// **Backward.** To the element chosen, the first of equal ones. As in torch a NaN is chosen over
// any number, the last of several.
// **Threads and exceptions.** A ShapeError that names kernel and shape, a ValueError for a stride
// or padding that makes no sense.
inline Tensor max_pool2d(const Tensor& x, Size2d kernel, Size2d stride, Size2d padding = 0) {
  check<ShapeError>(x.dim() == 3 || x.dim() == 4,
                    "max_pool2d: expected an input of shape [batch, channels, height, width] or "
                    "[channels, height, width], got ",
                    x.sizes());
  check<ValueError>(kernel.height >= 1 && kernel.width >= 1,
                    "max_pool2d: expected a kernel of at least 1, got ", kernel);
  check<ValueError>(stride.height >= 1 && stride.width >= 1,
                    "max_pool2d: expected a stride of at least 1, got ", stride);
  check<ValueError>(padding.height >= 0 && padding.width >= 0 &&
                        padding.height <= kernel.height / 2 && padding.width <= kernel.width / 2,
                    "max_pool2d: expected a padding from 0 to half the kernel ", kernel, ", got ",
                    padding);
  const std::int64_t height = x.size(-2) + 2 * padding.height;
  const std::int64_t width = x.size(-1) + 2 * padding.width;
  check<ShapeError>(
      x.size(-2) > 0 && x.size(-1) > 0 && kernel.height <= height && kernel.width <= width,
      "max_pool2d: a kernel of ", kernel, " does not fit an input of shape ", x.sizes(),
      ", padded to ", Shape{height, width});
  check<ShapeError>(x.size(-2) <= std::numeric_limits<std::int32_t>::max() / x.size(-1),
                    "max_pool2d: an input of shape ", x.sizes(), " has too large a plane");
  const std::int64_t planes = x.dim() == 4 ? x.size(0) * x.size(1) : x.size(0);
  const detail::PoolGeometry g{planes,
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
  return apply(detail::MaxPoolOp{g}, x);
}

// Windows of `kernel` side by side.
inline Tensor max_pool2d(const Tensor& x, Size2d kernel) { return max_pool2d(x, kernel, kernel); }

}  // namespace lockstep
