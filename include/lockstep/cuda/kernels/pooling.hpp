// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/cuda/launch/kernel.hpp>
#include <lockstep/cuda/launch/kernel_list.hpp>
#include <lockstep/cuda/launch/strided_index.hpp>
#include <lockstep/ops/kernels/pooling_kernels.hpp>

#include <cstddef>
#include <cstdint>

// Pooling by kernels of lockstep's own: cuDNN's pooling is deprecated since version 9. Its maximum
// gives no indices, from which lockstep computes the gradient and the gradient's derivative, so
// that the library would choose the place of a tie or a NaN; and the gradient of its mean takes x
// and y, which are not needed and would have to be kept.
namespace lockstep::cuda {

// The position of element i in planes of height · width.
struct PlanePosition {
  std::int64_t plane, y, x;
};
LOCKSTEP_HD inline PlanePosition plane_position(std::size_t i, std::int64_t height,
                                                std::int64_t width) {
  const Division line = divided(i, static_cast<std::size_t>(width));
  const Division plane = divided(line.quotient, static_cast<std::size_t>(height));
  return {static_cast<std::int64_t>(plane.quotient), static_cast<std::int64_t>(plane.remainder),
          static_cast<std::int64_t>(line.remainder)};
}

LOCKSTEP_HD inline std::int64_t at_least(std::int64_t low, std::int64_t x) {
  return x < low ? low : x;
}
LOCKSTEP_HD inline std::int64_t at_most(std::int64_t high, std::int64_t x) {
  return x > high ? high : x;
}

// The greatest element of one window, a NaN above all others, and its place in the plane.
template <class T>
struct MaxPoolWindows {
  View<const T> in;
  View<T> out;
  View<std::int32_t> indices;
  lockstep::detail::PoolGeometry g;
  LOCKSTEP_HD void operator()(std::size_t i) const {
    const PlanePosition at = plane_position(i, g.out_height, g.out_width);
    const T* const plane = in.data + at.plane * g.in_plane();
    const std::int64_t y = at.y * g.stride_height - g.padding_height;
    const std::int64_t x = at.x * g.stride_width - g.padding_width;
    const std::int64_t top = at_least(0, y);
    const std::int64_t left = at_least(0, x);
    const std::int64_t bottom = at_most(g.in_height, y + g.kernel_height);
    const std::int64_t right = at_most(g.in_width, x + g.kernel_width);
    std::int64_t found = top * g.in_width + left;
    T greatest = plane[found];
    for (std::int64_t row = top; row < bottom; ++row) {
      for (std::int64_t col = left; col < right; ++col) {
        const T value = plane[row * g.in_width + col];
        if (value > greatest || value != value) {
          greatest = value;
          found = row * g.in_width + col;
        }
      }
    }
    out[i] = greatest;
    indices[i] = static_cast<std::int32_t>(found);
  }
};

// The windows that reach a place along one dimension: [first, end).
struct Windows {
  std::int64_t first, end;
};
LOCKSTEP_HD inline Windows windows_at(std::int64_t place, std::int64_t kernel, std::int64_t stride,
                                      std::int64_t padding, std::int64_t count) {
  const std::int64_t padded = place + padding;
  return {padded < kernel ? 0 : (padded - kernel) / stride + 1,
          at_most(count, padded / stride + 1)};
}
LOCKSTEP_HD inline Windows rows_of_windows(const lockstep::detail::PoolGeometry& g,
                                           std::int64_t y) {
  return windows_at(y, g.kernel_height, g.stride_height, g.padding_height, g.out_height);
}
LOCKSTEP_HD inline Windows cols_of_windows(const lockstep::detail::PoolGeometry& g,
                                           std::int64_t x) {
  return windows_at(x, g.kernel_width, g.stride_width, g.padding_width, g.out_width);
}

// One pixel of a whole plane: the sum over the windows that chose it, in their order.
template <class T>
struct PoolScatterPixels {
  View<const T> in;
  View<const std::int32_t> indices;
  View<T> out;
  lockstep::detail::PoolGeometry g;
  LOCKSTEP_HD void operator()(std::size_t i) const {
    const PlanePosition at = plane_position(i, g.in_height, g.in_width);
    const std::int64_t pixel = at.y * g.in_width + at.x;
    const Windows rows = rows_of_windows(g, at.y);
    const Windows cols = cols_of_windows(g, at.x);
    T sum = T(0);
    for (std::int64_t row = rows.first; row < rows.end; ++row) {
      for (std::int64_t col = cols.first; col < cols.end; ++col) {
        const std::int64_t window = at.plane * g.out_plane() + row * g.out_width + col;
        if (indices.data[window] == pixel) sum += in.data[window];
      }
    }
    out[i] = sum;
  }
};

template <class T>
struct PoolGatherElements {
  View<const T> in;
  View<const std::int32_t> indices;
  View<T> out;
  lockstep::detail::PoolGeometry g;
  LOCKSTEP_HD void operator()(std::size_t i) const {
    const std::size_t plane = divided(i, static_cast<std::size_t>(g.out_plane())).quotient;
    out[i] = in.data[static_cast<std::int64_t>(plane) * g.in_plane() + indices[i]];
  }
};

// The mean of one window.
template <class T>
struct AvgPoolWindows {
  View<const T> in;
  View<T> out;
  lockstep::detail::PoolGeometry g;
  bool include_pad;
  LOCKSTEP_HD void operator()(std::size_t i) const {
    const PlanePosition at = plane_position(i, g.out_height, g.out_width);
    const T* const plane = in.data + at.plane * g.in_plane();
    const std::int64_t y = at.y * g.stride_height - g.padding_height;
    const std::int64_t x = at.x * g.stride_width - g.padding_width;
    const std::int64_t bottom = at_most(g.in_height, y + g.kernel_height);
    const std::int64_t right = at_most(g.in_width, x + g.kernel_width);
    T sum = T(0);
    for (std::int64_t row = at_least(0, y); row < bottom; ++row) {
      for (std::int64_t col = at_least(0, x); col < right; ++col) {
        sum += plane[row * g.in_width + col];
      }
    }
    out[i] = sum * lockstep::detail::pool_weight<T>(g, include_pad, at.y, at.x);
  }
};

// One pixel of a whole plane: its share of each window that it is in.
template <class T>
struct AvgSpreadPixels {
  View<const T> in;
  View<T> out;
  lockstep::detail::PoolGeometry g;
  bool include_pad;
  LOCKSTEP_HD void operator()(std::size_t i) const {
    const PlanePosition at = plane_position(i, g.in_height, g.in_width);
    const Windows rows = rows_of_windows(g, at.y);
    const Windows cols = cols_of_windows(g, at.x);
    const T* const plane = in.data + at.plane * g.out_plane();
    T sum = T(0);
    for (std::int64_t row = rows.first; row < rows.end; ++row) {
      for (std::int64_t col = cols.first; col < cols.end; ++col) {
        sum += plane[row * g.out_width + col] *
               lockstep::detail::pool_weight<T>(g, include_pad, row, col);
      }
    }
    out[i] = sum;
  }
};

template <class T>
struct CudaCall<lockstep::detail::AvgPoolCall<T>> {
  using kernels = Kernels<AvgPoolWindows<T>>;
  static void run(lockstep::detail::StreamState& stream,
                  const lockstep::detail::AvgPoolCall<T>& call) {
    launch_kernel(stream, call.out.size,
                  AvgPoolWindows<T>{call.in, call.out, call.g, call.include_pad});
  }
};

template <class T>
struct CudaCall<lockstep::detail::AvgSpreadCall<T>> {
  using kernels = Kernels<AvgSpreadPixels<T>>;
  static void run(lockstep::detail::StreamState& stream,
                  const lockstep::detail::AvgSpreadCall<T>& call) {
    launch_kernel(stream, call.out.size,
                  AvgSpreadPixels<T>{call.in, call.out, call.g, call.include_pad});
  }
};

template <class T>
struct CudaCall<lockstep::detail::MaxPoolCall<T>> {
  using kernels = Kernels<MaxPoolWindows<T>>;
  static void run(lockstep::detail::StreamState& stream,
                  const lockstep::detail::MaxPoolCall<T>& call) {
    launch_kernel(stream, call.out.size,
                  MaxPoolWindows<T>{call.in, call.out, call.indices, call.g});
  }
};

template <class T>
struct CudaCall<lockstep::detail::PoolScatterCall<T>> {
  using kernels = Kernels<PoolScatterPixels<T>>;
  static void run(lockstep::detail::StreamState& stream,
                  const lockstep::detail::PoolScatterCall<T>& call) {
    launch_kernel(stream, call.out.size,
                  PoolScatterPixels<T>{call.in, call.indices, call.out, call.g});
  }
};

template <class T>
struct CudaCall<lockstep::detail::PoolGatherCall<T>> {
  using kernels = Kernels<PoolGatherElements<T>>;
  static void run(lockstep::detail::StreamState& stream,
                  const lockstep::detail::PoolGatherCall<T>& call) {
    launch_kernel(stream, call.out.size,
                  PoolGatherElements<T>{call.in, call.indices, call.out, call.g});
  }
};

using PoolingCalls = Join<ForFloating<lockstep::detail::MaxPoolCall>::type,
                          ForFloating<lockstep::detail::PoolScatterCall>::type,
                          ForFloating<lockstep::detail::PoolGatherCall>::type,
                          ForFloating<lockstep::detail::AvgPoolCall>::type,
                          ForFloating<lockstep::detail::AvgSpreadCall>::type>::type;

}  // namespace lockstep::cuda
