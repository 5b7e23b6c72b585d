// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/cuda/kernel.hpp>
#include <lockstep/cuda/kernel_list.hpp>
#include <lockstep/cuda/strided_index.hpp>
#include <lockstep/ops/pooling_kernels.hpp>

#include <cstddef>
#include <cstdint>

namespace lockstep::cuda {

// Where element number i of planes of height · width is.
struct PlanePlace {
  std::int64_t plane, y, x;
};
LOCKSTEP_HD inline PlanePlace plane_place(std::size_t i, std::int64_t height, std::int64_t width) {
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

// One window.
template <class T>
struct MaxPoolWindows {
  View<const T> in;
  View<T> out;
  View<std::int32_t> indices;
  lockstep::detail::PoolGeometry g;
  LOCKSTEP_HD void operator()(std::size_t i) const {
    const PlanePlace at = plane_place(i, g.out_height, g.out_width);
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

// One pixel of a whole plane: the sum over the windows that chose it, in their order.
template <class T>
struct PoolScatterPixels {
  View<const T> in;
  View<const std::int32_t> indices;
  View<T> out;
  lockstep::detail::PoolGeometry g;
  LOCKSTEP_HD void operator()(std::size_t i) const {
    const PlanePlace at = plane_place(i, g.in_height, g.in_width);
    const std::int64_t pixel = at.y * g.in_width + at.x;
    const std::int64_t top =
        first_window(at.y + g.padding_height, g.kernel_height, g.stride_height);
    const std::int64_t left = first_window(at.x + g.padding_width, g.kernel_width, g.stride_width);
    const std::int64_t bottom =
        at_most(g.out_height - 1, (at.y + g.padding_height) / g.stride_height);
    const std::int64_t right = at_most(g.out_width - 1, (at.x + g.padding_width) / g.stride_width);
    T sum = T(0);
    for (std::int64_t row = top; row <= bottom; ++row) {
      for (std::int64_t col = left; col <= right; ++col) {
        const std::int64_t window = at.plane * g.out_plane() + row * g.out_width + col;
        if (indices.data[window] == pixel) sum += in.data[window];
      }
    }
    out[i] = sum;
  }

 private:
  // Of those along one dimension that reach a place, counted with the padding.
  LOCKSTEP_HD static std::int64_t first_window(std::int64_t place, std::int64_t kernel,
                                               std::int64_t stride) {
    return place < kernel ? 0 : (place - kernel) / stride + 1;
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
                          ForFloating<lockstep::detail::PoolGatherCall>::type>::type;

}  // namespace lockstep::cuda
