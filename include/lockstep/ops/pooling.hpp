// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/function.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/size2d.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/half.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>

namespace lockstep {

namespace detail {

// Windows over planes, a plane being one channel of one image.
struct PoolGeometry {
  std::int64_t planes, in_height, in_width, out_height, out_width;
  std::int64_t kernel_height, kernel_width;
  std::int64_t stride_height, stride_width, padding_height, padding_width;
};

// The greatest element of each window and its place in its plane. A NaN is greater than all.
template <class T>
struct MaxPoolCall {
  View<const T> in;
  View<T> out;
  View<std::int32_t> indices;
  PoolGeometry g;

  void operator()() const {
    const bool halves = g.kernel_height == 2 && g.kernel_width == 2 && g.stride_height == 2 &&
                        g.stride_width == 2 && g.padding_height == 0 && g.padding_width == 0;
    const T* plane = in.data;
    T* to = out.data;
    std::int32_t* index = indices.data;
    for (std::int64_t p = 0; p < g.planes; ++p, plane += g.in_height * g.in_width) {
      for (std::int64_t y = 0; y < g.out_height; ++y, to += g.out_width, index += g.out_width) {
        if (halves) {
          row_of_halves(plane, y, to, index);
        } else {
          for (std::int64_t x = 0; x < g.out_width; ++x) window(plane, y, x, to[x], index[x]);
        }
      }
    }
  }

 private:
  static bool beats(T value, T best) { return (value > best) | (value != value); }

  // Windows of 2 × 2 side by side.
  void row_of_halves(const T* plane, std::int64_t y, T* to, std::int32_t* index) const {
    const auto width = static_cast<std::int32_t>(g.in_width);
    const auto first = static_cast<std::int32_t>(2 * y * g.in_width);
    const auto count = static_cast<std::int32_t>(g.out_width);
    const T* const upper = plane + first;
    const T* const lower = upper + width;
    LOCKSTEP_INDEPENDENT
    for (std::int32_t x = 0; x < count; ++x) {
      T best = upper[2 * x];
      std::int32_t at = first + 2 * x;
      const T right = upper[2 * x + 1];
      at = beats(right, best) ? first + 2 * x + 1 : at;
      best = beats(right, best) ? right : best;
      const T below = lower[2 * x];
      at = beats(below, best) ? first + width + 2 * x : at;
      best = beats(below, best) ? below : best;
      const T across = lower[2 * x + 1];
      at = beats(across, best) ? first + width + 2 * x + 1 : at;
      best = beats(across, best) ? across : best;
      to[x] = best;
      index[x] = at;
    }
  }

  void window(const T* plane, std::int64_t y, std::int64_t x, T& best, std::int32_t& at) const {
    const std::int64_t top = y * g.stride_height - g.padding_height;
    const std::int64_t left = x * g.stride_width - g.padding_width;
    const std::int64_t bottom = std::min(top + g.kernel_height, g.in_height);
    const std::int64_t right = std::min(left + g.kernel_width, g.in_width);
    std::int64_t found =
        std::max<std::int64_t>(top, 0) * g.in_width + std::max<std::int64_t>(left, 0);
    T greatest = plane[found];
    for (std::int64_t i = std::max<std::int64_t>(top, 0); i < bottom; ++i) {
      for (std::int64_t j = std::max<std::int64_t>(left, 0); j < right; ++j) {
        const T value = plane[i * g.in_width + j];
        if (beats(value, greatest)) {
          greatest = value;
          found = i * g.in_width + j;
        }
      }
    }
    best = greatest;
    at = static_cast<std::int32_t>(found);
  }
};

// out[plane, indices[plane, i]] += in[plane, i], the rest zero; in this order, as windows overlap.
template <class T>
struct PoolScatterCall {
  View<const T> in;
  View<const std::int32_t> indices;
  View<T> out;
  std::int64_t planes, from_size, to_size;

  void operator()() const {
    std::fill_n(out.data, out.size, T(0));
    for (std::int64_t p = 0; p < planes; ++p) {
      const T* const from = in.data + p * from_size;
      const std::int32_t* const at = indices.data + p * from_size;
      T* const to = out.data + p * to_size;
      for (std::int64_t i = 0; i < from_size; ++i) to[at[i]] += from[i];
    }
  }
};

// out[plane, i] = in[plane, indices[plane, i]]
template <class T>
struct PoolGatherCall {
  View<const T> in;
  View<const std::int32_t> indices;
  View<T> out;
  std::int64_t planes, from_size, to_size;

  void operator()() const {
    for (std::int64_t p = 0; p < planes; ++p) {
      const T* const from = in.data + p * from_size;
      const std::int32_t* const at = indices.data + p * to_size;
      T* const to = out.data + p * to_size;
      for (std::int64_t i = 0; i < to_size; ++i) to[i] = from[at[i]];
    }
  }
};

// Between the pooled shape and the shape before, along fixed indices: each way is linear, and the
// other one's derivative.
template <bool Scatter>
struct PoolRoute {
  static constexpr const char* name = Scatter ? "max_pool2d_scatter" : "max_pool2d_gather";
  Tensor indices;
  Shape shape;  // of the result
  std::int64_t planes;
  Shape from = {};

  Tensor forward(const Tensor& tensor) {
    from = tensor.sizes();
    const Tensor in = packed_wide(tensor);
    const Stream stream = current_stream(tensor.device());
    return compute_floating(tensor.dtype(), name, [&]<class T>(T) {
      Tensor out = empty_on(stream, shape, dtype_of<T>);
      if (planes == 0) return out;
      const View<const T> values = input<T>(in);
      const View<const std::int32_t> at = input<std::int32_t>(indices);
      const View<T> result = output<T>(out, stream);
      const std::int64_t from_size = in.numel() / planes;
      const std::int64_t to_size = out.numel() / planes;
      if constexpr (Scatter) {
        launch_call(stream, PoolScatterCall<T>{values, at, result, planes, from_size, to_size});
      } else {
        launch_call(stream, PoolGatherCall<T>{values, at, result, planes, from_size, to_size});
      }
      return out;
    });
  }

  Tensor backward(const Backward&, const Tensor& grad) const {
    return apply(PoolRoute<!Scatter>{indices, from, planes}, grad);
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
    return apply(PoolRoute<true>{indices, shape, g.planes}, grad);
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
