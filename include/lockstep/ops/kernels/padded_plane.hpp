// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/ops/conv_geometry.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace lockstep::detail {

// Copies a run of a few elements, for which a call of memcpy would cost more.
template <class T>
void copy_run(const T* from, T* to, std::int64_t count) {
  constexpr std::int64_t kBlock = 16 / static_cast<std::int64_t>(sizeof(T));
  std::int64_t i = 0;
  for (; i + kBlock <= count; i += kBlock) std::memcpy(to + i, from + i, 16);
  if (i == count) return;
  if (count >= kBlock) {  // the last block overlaps the one before
    std::memcpy(to + count - kBlock, from + count - kBlock, 16);
  } else {
    for (; i < count; ++i) to[i] = from[i];
  }
}

// A channel of an image as a convolution on the host reads it: what the kernel sees of it and of
// the padding. In a row columns that the stride takes together are neighbours: those of each
// remainder after the others.
struct PaddedPlane {
  std::int64_t every = 0;  // columns of one remainder
  std::int64_t row = 0;
  std::int64_t size = 0;

  PaddedPlane() = default;
  // With room for a row of `width` results, which may be more than the geometry's.
  PaddedPlane(const ConvGeometry& g, std::int64_t width)
      : every(width + (g.kernel_width - 1) * g.dilation_width / g.stride_width),
        row(every * g.stride_width),
        size(g.padded_rows() * row) {}

  // Where the first result's row and column meet a kernel element.
  std::int64_t place(const ConvGeometry& g, std::int64_t tap) const {
    const std::int64_t down = tap / g.kernel_width * g.dilation_height;
    return down * row + column(g, tap % g.kernel_width * g.dilation_width);
  }

  // Writes a channel into the plane, whose padding is there already.
  template <class T>
  void fill(const ConvGeometry& g, const T* channel, T* plane) const {
    const std::int64_t step = g.stride_width;
    if (step == 1) {  // by itself, so that a run of few elements costs little more than they do
      for_each_run(g, [=](std::int64_t from, std::int64_t to, std::int64_t count) {
        copy_run(channel + from, plane + to, count);
      });
    } else {
      for_each_run(g, [=](std::int64_t from, std::int64_t to, std::int64_t count) {
        if (step == 2) return take<2>(channel + from, plane + to, count);
        for (std::int64_t x = 0; x < count; ++x) plane[to + x] = channel[from + x * step];
      });
    }
  }

  // Writes what the plane has of a channel into it.
  template <class T>
  void read(const ConvGeometry& g, const T* plane, T* channel) const {
    for_each_run(g, [&](std::int64_t to, std::int64_t from, std::int64_t count) {
      if (g.stride_width == 1) return copy_run(plane + from, channel + to, count);
      for (std::int64_t x = 0; x < count; ++x) channel[to + x * g.stride_width] = plane[from + x];
    });
  }

 private:
  // Copies elements that are `stride` apart: compilers make vectors of a number that they know.
  template <std::int64_t stride, class T>
  static void take(const T* from, T* to, std::int64_t count) {
    LOCKSTEP_INDEPENDENT
    for (std::int64_t x = 0; x < count; ++x) to[x] = from[x * stride];
  }

  // Calls run(in the channel, in the padded plane, count) for each run of its elements, which are
  // `stride_width` apart in the channel.
  template <class Run>
  void for_each_run(const ConvGeometry& g, const Run& run) const {
    const std::int64_t rows = g.seen_rows();
    const std::int64_t columns = g.seen_columns();
    const std::int64_t step = g.stride_width, line = g.in_width, next = row;
    for (std::int64_t first = 0; first < std::min(step, columns); ++first) {
      const std::int64_t count = step == 1 ? columns : (columns - first + step - 1) / step;
      const std::int64_t to = g.padding_height * row + column(g, first + g.padding_width);
      for (std::int64_t y = 0; y < rows; ++y) run(y * line + first, to + y * next, count);
    }
  }

  std::int64_t column(const ConvGeometry& g, std::int64_t column) const {
    if (g.stride_width == 1) return column;  // divisions take as long as a small plane's copy
    return column % g.stride_width * every + column / g.stride_width;
  }
};

}  // namespace lockstep::detail
