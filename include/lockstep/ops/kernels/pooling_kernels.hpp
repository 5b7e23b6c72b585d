// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace lockstep::detail {

// Windows over planes, a plane being one channel of one image.
struct PoolGeometry {
  std::int64_t planes, in_height, in_width, out_height, out_width;
  std::int64_t kernel_height, kernel_width;
  std::int64_t stride_height, stride_width, padding_height, padding_width;

  LOCKSTEP_HD std::int64_t in_plane() const { return in_height * in_width; }
  LOCKSTEP_HD std::int64_t out_plane() const { return out_height * out_width; }
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

// out[plane, indices[plane, i]] += in[plane, i], from pooled planes to whole ones, the rest zero;
// in this order, as windows overlap.
template <class T>
struct PoolScatterCall {
  View<const T> in;
  View<const std::int32_t> indices;
  View<T> out;
  PoolGeometry g;

  void operator()() const {
    std::fill_n(out.data, out.size, T(0));
    const std::int64_t from_size = g.out_plane();
    for (std::int64_t p = 0; p < g.planes; ++p) {
      const T* const from = in.data + p * from_size;
      const std::int32_t* const at = indices.data + p * from_size;
      T* const to = out.data + p * g.in_plane();
      for (std::int64_t i = 0; i < from_size; ++i) to[at[i]] += from[i];
    }
  }
};

// out[plane, i] = in[plane, indices[plane, i]], from whole planes to pooled ones.
template <class T>
struct PoolGatherCall {
  View<const T> in;
  View<const std::int32_t> indices;
  View<T> out;
  PoolGeometry g;

  void operator()() const {
    const std::int64_t to_size = g.out_plane();
    for (std::int64_t p = 0; p < g.planes; ++p) {
      const T* const from = in.data + p * g.in_plane();
      const std::int32_t* const at = indices.data + p * to_size;
      T* const to = out.data + p * to_size;
      for (std::int64_t i = 0; i < to_size; ++i) to[i] = from[at[i]];
    }
  }
};

// How many places of the image a window covers along one dimension.
LOCKSTEP_HD inline std::int64_t pool_overlap(std::int64_t place, std::int64_t kernel,
                                             std::int64_t stride, std::int64_t padding,
                                             std::int64_t size) {
  const std::int64_t from = place * stride - padding;
  const std::int64_t first = from < 0 ? 0 : from;
  const std::int64_t last = from + kernel > size ? size : from + kernel;
  return last - first;
}

// The factor of each element in the mean of window (y, x).
template <class T>
LOCKSTEP_HD T pool_weight(const PoolGeometry& g, bool include_pad, std::int64_t y, std::int64_t x) {
  const std::int64_t count =
      include_pad
          ? g.kernel_height * g.kernel_width
          : pool_overlap(y, g.kernel_height, g.stride_height, g.padding_height, g.in_height) *
                pool_overlap(x, g.kernel_width, g.stride_width, g.padding_width, g.in_width);
  return T(1) / static_cast<T>(count);
}

// The mean of each window, from whole planes to pooled ones.
template <class T>
struct AvgPoolCall {
  View<const T> in;
  View<T> out;
  PoolGeometry g;
  bool include_pad;

  void operator()() const {
    const T* plane = in.data;
    T* to = out.data;
    for (std::int64_t p = 0; p < g.planes; ++p, plane += g.in_plane()) {
      for (std::int64_t y = 0; y < g.out_height; ++y) {
        for (std::int64_t x = 0; x < g.out_width; ++x) *to++ = window(plane, y, x);
      }
    }
  }

 private:
  T window(const T* plane, std::int64_t y, std::int64_t x) const {
    const std::int64_t top = y * g.stride_height - g.padding_height;
    const std::int64_t left = x * g.stride_width - g.padding_width;
    const std::int64_t bottom = std::min(top + g.kernel_height, g.in_height);
    const std::int64_t right = std::min(left + g.kernel_width, g.in_width);
    T sum = T(0);
    for (std::int64_t i = std::max<std::int64_t>(top, 0); i < bottom; ++i) {
      for (std::int64_t j = std::max<std::int64_t>(left, 0); j < right; ++j) {
        sum += plane[i * g.in_width + j];
      }
    }
    return sum * pool_weight<T>(g, include_pad, y, x);
  }
};

// The transpose of AvgPoolCall: from pooled planes to whole ones, each element spread evenly over
// its window.
template <class T>
struct AvgSpreadCall {
  View<const T> in;
  View<T> out;
  PoolGeometry g;
  bool include_pad;

  void operator()() const {
    std::fill_n(out.data, out.size, T(0));
    const T* from = in.data;
    T* plane = out.data;
    for (std::int64_t p = 0; p < g.planes; ++p, plane += g.in_plane()) {
      for (std::int64_t y = 0; y < g.out_height; ++y) {
        for (std::int64_t x = 0; x < g.out_width; ++x) spread(plane, y, x, *from++);
      }
    }
  }

 private:
  void spread(T* plane, std::int64_t y, std::int64_t x, T value) const {
    const std::int64_t top = y * g.stride_height - g.padding_height;
    const std::int64_t left = x * g.stride_width - g.padding_width;
    const std::int64_t bottom = std::min(top + g.kernel_height, g.in_height);
    const std::int64_t right = std::min(left + g.kernel_width, g.in_width);
    const T share = value * pool_weight<T>(g, include_pad, y, x);
    for (std::int64_t i = std::max<std::int64_t>(top, 0); i < bottom; ++i) {
      for (std::int64_t j = std::max<std::int64_t>(left, 0); j < right; ++j) {
        plane[i * g.in_width + j] += share;
      }
    }
  }
};

}  // namespace lockstep::detail
