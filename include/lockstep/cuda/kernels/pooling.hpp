// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/cuda/launch/kernel.hpp>
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

template <class T>
struct MaxPoolWindows {
  detail::MaxPoolCall<T> call;

  LOCKSTEP_HD void operator()(std::size_t i) const {
    const PlanePosition at = plane_position(i, call.g.out_height, call.g.out_width);
    const T* const plane = call.in.data + at.plane * call.g.in_plane();
    detail::pool_greatest(call.g, plane, call.g.window(at.y, at.x), call.out[i], call.indices[i]);
  }
};

// The windows that reach a place along one dimension: [first, end).
struct Windows {
  std::int64_t first, end;
};
LOCKSTEP_HD inline Windows windows_at(std::int64_t place, std::int64_t kernel, std::int64_t stride,
                                      std::int64_t padding, std::int64_t count) {
  const std::int64_t padded = place + padding;
  const std::int64_t end = padded / stride + 1;
  return {padded < kernel ? 0 : (padded - kernel) / stride + 1, end > count ? count : end};
}
// Calls visit(row, col) for each of the pooled plane's windows over a pixel, in their order.
template <class Visit>
LOCKSTEP_HD void for_each_window_over(const detail::PoolGeometry& g, const PlanePosition& pixel,
                                      const Visit& visit) {
  const Windows rows =
      windows_at(pixel.y, g.kernel_height, g.stride_height, g.padding_height, g.out_height);
  const Windows cols =
      windows_at(pixel.x, g.kernel_width, g.stride_width, g.padding_width, g.out_width);
  for (std::int64_t row = rows.first; row < rows.end; ++row) {
    for (std::int64_t col = cols.first; col < cols.end; ++col) visit(row, col);
  }
}

// One pixel of a whole plane: the sum over the windows that chose it, in their order.
template <class T>
struct PoolScatterPixels {
  detail::PoolScatterCall<T> call;

  LOCKSTEP_HD void operator()(std::size_t i) const {
    const PlanePosition at = plane_position(i, call.g.in_height, call.g.in_width);
    const std::int64_t pixel = at.y * call.g.in_width + at.x;
    T sum = T(0);
    for_each_window_over(call.g, at, [&](std::int64_t row, std::int64_t col) {
      const std::int64_t window = at.plane * call.g.out_plane() + row * call.g.out_width + col;
      if (call.indices.data[window] == pixel) sum += call.in.data[window];
    });
    call.out[i] = sum;
  }
};

template <class T>
struct AvgPoolWindows {
  detail::AvgPoolCall<T> call;

  LOCKSTEP_HD void operator()(std::size_t i) const {
    const PlanePosition at = plane_position(i, call.g.out_height, call.g.out_width);
    const T* const plane = call.in.data + at.plane * call.g.in_plane();
    call.out[i] = detail::pool_mean(call.g, call.include_pad, plane, call.g.window(at.y, at.x));
  }
};

// One pixel of a whole plane: its share of each window that it is in.
template <class T>
struct AvgSpreadPixels {
  detail::AvgSpreadCall<T> call;

  LOCKSTEP_HD void operator()(std::size_t i) const {
    const PlanePosition at = plane_position(i, call.g.in_height, call.g.in_width);
    const T* const plane = call.in.data + at.plane * call.g.out_plane();
    T sum = T(0);
    for_each_window_over(call.g, at, [&](std::int64_t row, std::int64_t col) {
      sum += plane[row * call.g.out_width + col] *
             detail::pool_weight<T>(call.g, call.include_pad, call.g.window(row, col));
    });
    call.out[i] = sum;
  }
};

template <class T>
struct CudaCall<detail::AvgPoolCall<T>> : ElementCall<AvgPoolWindows<T>> {};

template <class T>
struct CudaCall<detail::AvgSpreadCall<T>> : ElementCall<AvgSpreadPixels<T>> {};

template <class T>
struct CudaCall<detail::MaxPoolCall<T>> : ElementCall<MaxPoolWindows<T>> {};

template <class T>
struct CudaCall<detail::PoolScatterCall<T>> : ElementCall<PoolScatterPixels<T>> {};

using PoolingCalls = ForFloating<detail::MaxPoolCall, detail::PoolScatterCall, detail::AvgPoolCall,
                                 detail::AvgSpreadCall>;

}  // namespace lockstep::cuda
