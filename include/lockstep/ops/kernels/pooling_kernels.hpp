// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

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

// Of the wider vectors that the host pools by; rows that are too short for them have those of 16.
inline constexpr std::size_t kPoolBytes = __BIGGEST_ALIGNMENT__ > 16 ? 32 : 16;

// The elements at one place of windows side by side, as many as a vector of so many bytes has.
template <class T, std::size_t bytes>
struct PoolLanes {
  static constexpr std::int64_t kCount = bytes / sizeof(T);
  using Values [[gnu::vector_size(bytes)]] = T;
  using Integer = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
  using Integers [[gnu::vector_size(bytes)]] = Integer;

  static void load(const T* from, std::int64_t stride, Values& to) {
    std::memcpy(&to, from, sizeof to);
    if (stride == 1) return;
    Values rest;  // from the last element on, since there may be none behind the last window's
    std::memcpy(&rest, from + kCount - 1, sizeof rest);
    if constexpr (kCount == 8) {
      to = __builtin_shufflevector(to, rest, 0, 2, 4, 6, 9, 11, 13, 15);
    } else if constexpr (kCount == 4) {
      to = __builtin_shufflevector(to, rest, 0, 2, 5, 7);
    } else {
      to = __builtin_shufflevector(to, rest, 0, 3);
    }
  }
};

// Calls block(lanes, x) for the windows of a row, as many as there are lanes from x on, if they
// reach into no padding, some of them twice; and one(x) for each that is left.
template <class T, class Block, class One>
void for_each_window(const PoolGeometry& g, const Block& block, const One& one) {
  std::int64_t x = 0;
  const auto blocks = [&](auto lanes, std::int64_t end) {
    if (end - x < lanes.kCount) return;
    for (; x < end; x += lanes.kCount) block(lanes, std::min(x, end - lanes.kCount));
    x = end;
  };
  const std::int64_t room = g.in_width + g.padding_width - g.kernel_width;
  if (g.stride_width <= 2 && room >= 0) {
    const std::int64_t begin = (g.padding_width + g.stride_width - 1) / g.stride_width;
    const std::int64_t end = std::min(room / g.stride_width + 1, g.out_width);
    for (; x < std::min(begin, g.out_width); ++x) one(x);
    blocks(PoolLanes<T, kPoolBytes>(), end);
    blocks(PoolLanes<T, 16>(), end);
  }
  for (; x < g.out_width; ++x) one(x);
}

// The greatest element of each window and its place in its plane.
template <class T>
struct MaxPoolCall {
  View<const T> in;
  View<T> out;
  View<std::int32_t> indices;
  PoolGeometry g;

  void operator()() const {
    const bool of_pairs = g.kernel_height == 2 && g.kernel_width == 2 && g.stride_width == 2 &&
                          g.padding_height == 0 && g.padding_width == 0;
    const T* plane = in.data;
    T* to = out.data;
    std::int32_t* index = indices.data;
    for (std::int64_t p = 0; p < g.planes; ++p, plane += g.in_plane()) {
      for (std::int64_t y = 0; y < g.out_height; ++y, to += g.out_width, index += g.out_width) {
        if (of_pairs) {
          row_of_pairs(plane, y, to, index);
        } else {
          for_each_window<T>(
              g,
              [&](auto lanes, std::int64_t x) {
                find_greatest(lanes, plane, g.window(y, x), to + x, index + x);
              },
              [&](std::int64_t x) { pool_greatest(g, plane, g.window(y, x), to[x], index[x]); });
        }
      }
    }
  }

 private:
  // Windows of 2 × 2 side by side, of which compilers make vectors.
  void row_of_pairs(const T* plane, std::int64_t y, T* to, std::int32_t* index) const {
    const auto width = static_cast<std::int32_t>(g.in_width);
    const auto first = static_cast<std::int32_t>(y * g.stride_height * g.in_width);
    const T* const upper = plane + first;
    const auto count = static_cast<std::int32_t>(g.out_width);
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

  // As pool_greatest, but begins with less than any element, at the first one's place.
  template <class Lanes>
  void find_greatest(Lanes, const T* plane, const PoolWindow& first, T* to,
                     std::int32_t* index) const {
    using Values = typename Lanes::Values;
    using Integer = typename Lanes::Integer;
    using Integers = typename Lanes::Integers;
    Integers steps;
    for (std::int64_t i = 0; i < Lanes::kCount; ++i) {
      steps[i] = static_cast<Integer>(i * g.stride_width);
    }
    Values best = Values{} - std::numeric_limits<T>::infinity();
    Integers at = steps + static_cast<Integer>(first.top * g.in_width + first.left);
    for (std::int64_t row = first.top; row < first.bottom; ++row) {
      for (std::int64_t col = first.left; col < first.right; ++col) {
        const auto place = static_cast<Integer>(row * g.in_width + col);
        Values value;
        Lanes::load(plane + place, g.stride_width, value);
        const Integers beats = (value > best) | (value != value);
        best = __builtin_bit_cast(Values, (beats & __builtin_bit_cast(Integers, value)) |
                                              (~beats & __builtin_bit_cast(Integers, best)));
        at = (beats & (steps + place)) | (~beats & at);
      }
    }
    std::memcpy(to, &best, sizeof best);
    for (std::int64_t i = 0; i < Lanes::kCount; ++i) index[i] = static_cast<std::int32_t>(at[i]);
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
      for (std::int64_t y = 0; y < g.out_height; ++y, to += g.out_width) {
        for_each_window<T>(
            g,
            [&](auto lanes, std::int64_t x) { find_means(lanes, plane, g.window(y, x), to + x); },
            [&](std::int64_t x) { to[x] = pool_mean(g, include_pad, plane, g.window(y, x)); });
      }
    }
  }

 private:
  template <class Lanes>
  void find_means(Lanes, const T* plane, const PoolWindow& first, T* to) const {
    typename Lanes::Values sum = {};
    for (std::int64_t row = first.top; row < first.bottom; ++row) {
      for (std::int64_t col = first.left; col < first.right; ++col) {
        typename Lanes::Values value;
        Lanes::load(plane + row * g.in_width + col, g.stride_width, value);
        sum += value;
      }
    }
    sum *= pool_weight<T>(g, include_pad, first);
    std::memcpy(to, &sum, sizeof sum);
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
