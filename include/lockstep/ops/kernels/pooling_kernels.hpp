// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>

#include <algorithm>
#include <cstdint>

namespace lockstep::detail {

// The pixels of a plane that one window covers.
struct PoolWindow {
  std::int64_t top, left, bottom, right;
};

// Windows over planes, a plane being one channel of one image.
struct PoolGeometry {
  std::int64_t planes, in_height, in_width, out_height, out_width;
  std::int64_t kernel_height, kernel_width;
  std::int64_t stride_height, stride_width, padding_height, padding_width;

  LOCKSTEP_HD std::int64_t in_plane() const { return in_height * in_width; }
  LOCKSTEP_HD std::int64_t out_plane() const { return out_height * out_width; }
  LOCKSTEP_HD PoolWindow window(std::int64_t y, std::int64_t x) const {
    const std::int64_t top = y * stride_height - padding_height;
    const std::int64_t left = x * stride_width - padding_width;
    const std::int64_t bottom = top + kernel_height;
    const std::int64_t right = left + kernel_width;
    return {top < 0 ? 0 : top, left < 0 ? 0 : left, bottom > in_height ? in_height : bottom,
            right > in_width ? in_width : right};
  }
};

// Whether a value is greater than the best so far: a NaN is greater than all.
template <class T>
LOCKSTEP_HD bool pool_beats(T value, T best) {
  return (value > best) | (value != value);
}

// The greatest element of one window, and its place in the plane.
template <class T>
LOCKSTEP_HD void pool_greatest(const PoolGeometry& g, const T* plane, const PoolWindow& window,
                               T& best, std::int32_t& at) {
  std::int64_t found = window.top * g.in_width + window.left;
  T greatest = plane[found];
  for (std::int64_t row = window.top; row < window.bottom; ++row) {
    for (std::int64_t col = window.left; col < window.right; ++col) {
      const T value = plane[row * g.in_width + col];
      if (pool_beats(value, greatest)) {
        greatest = value;
        found = row * g.in_width + col;
      }
    }
  }
  best = greatest;
  at = static_cast<std::int32_t>(found);
}

// The greatest element of each window and its place in its plane.
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
          for (std::int64_t x = 0; x < g.out_width; ++x) {
            pool_greatest(g, plane, g.window(y, x), to[x], index[x]);
          }
        }
      }
    }
  }

 private:
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
      at = pool_beats(right, best) ? first + 2 * x + 1 : at;
      best = pool_beats(right, best) ? right : best;
      const T below = lower[2 * x];
      at = pool_beats(below, best) ? first + width + 2 * x : at;
      best = pool_beats(below, best) ? below : best;
      const T across = lower[2 * x + 1];
      at = pool_beats(across, best) ? first + width + 2 * x + 1 : at;
      best = pool_beats(across, best) ? across : best;
      to[x] = best;
      index[x] = at;
    }
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

// The factor of each element in the mean of a window.
template <class T>
LOCKSTEP_HD T pool_weight(const PoolGeometry& g, bool include_pad, const PoolWindow& window) {
  // (No integer holds the product of two large sizes.)
  if (include_pad) return T(1) / (static_cast<T>(g.kernel_height) * static_cast<T>(g.kernel_width));
  return T(1) / static_cast<T>((window.bottom - window.top) * (window.right - window.left));
}

// The mean of one window.
template <class T>
LOCKSTEP_HD T pool_mean(const PoolGeometry& g, bool include_pad, const T* plane,
                        const PoolWindow& window) {
  T sum = T(0);
  for (std::int64_t row = window.top; row < window.bottom; ++row) {
    for (std::int64_t col = window.left; col < window.right; ++col) {
      sum += plane[row * g.in_width + col];
    }
  }
  return sum * pool_weight<T>(g, include_pad, window);
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
        for (std::int64_t x = 0; x < g.out_width; ++x) {
          *to++ = pool_mean(g, include_pad, plane, g.window(y, x));
        }
      }
    }
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
        for (std::int64_t x = 0; x < g.out_width; ++x) {
          spread(plane, g.window(y, x), *from++);
        }
      }
    }
  }

 private:
  void spread(T* plane, const PoolWindow& window, T value) const {
    const T share = value * pool_weight<T>(g, include_pad, window);
    for (std::int64_t row = window.top; row < window.bottom; ++row) {
      for (std::int64_t col = window.left; col < window.right; ++col) {
        plane[row * g.in_width + col] += share;
      }
    }
  }
};

}  // namespace lockstep::detail
