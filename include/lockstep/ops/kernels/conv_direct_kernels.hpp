// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/ops/conv_geometry.hpp>

#include <cstdint>

// Convolution on the host by its definition, where each group has one output channel, as in a
// depthwise convolution: a channel of images is added to one of results, or the other way round, a
// kernel element at a time.
namespace lockstep::detail {

// The elements of two planes that meet under one kernel element: runs of `count` in each row.
struct ConvRuns {
  std::int64_t weight, image, result;  // the kernel element, and where the first runs lie
  std::int64_t rows, count;
  std::int64_t image_line, result_line;  // from one row to the next
  std::int64_t step;                     // from one element of an image's run to the next

  // Calls line(run in the images, run in the results) for each row.
  template <class In, class Out, class Line>
  void for_each_line(In* images, Out* results, const Line& line) const {
    images += image;
    results += result;
    for (std::int64_t y = 0; y < rows; ++y) {
      line(images + y * image_line, results + y * result_line);
    }
  }
};

// Calls visit(ConvRuns) for each kernel element of each channel of each image.
template <class Visit>
void for_each_runs(const ConvGeometry& g, const Visit& visit) {
  ConvRuns runs{};
  runs.image_line = g.line();
  runs.result_line = g.out_width;
  runs.step = g.stride_width;
  for (std::int64_t n = 0; n < g.batch; ++n) {
    runs.weight = 0;
    for (std::int64_t c = 0; c < g.in_channels; ++c) {
      const std::int64_t image = n * g.image() + c * g.plane();
      const std::int64_t result = n * g.result() + c / g.group_in() * g.pixels();
      for_each_tap(g, [&](std::int64_t offset, Inside rows, Inside cols) {
        runs.image = image + offset;
        runs.result = result + rows.begin * g.out_width + cols.begin;
        runs.rows = cols.size() == 0 ? 0 : rows.size();
        runs.count = cols.size();
        if (runs.rows > 0) visit(runs);
        ++runs.weight;
      });
    }
  }
}

template <class T>
void add_scaled(T scale, const T* from, std::int64_t from_step, T* to, std::int64_t to_step,
                std::int64_t count) {
  if (from_step == 1 && to_step == 1) {
    LOCKSTEP_INDEPENDENT
    for (std::int64_t i = 0; i < count; ++i) to[i] += scale * from[i];
  } else {
    for (std::int64_t i = 0; i < count; ++i) to[i * to_step] += scale * from[i * from_step];
  }
}

// Adds to `out`, which holds the bias or zeros.
template <class T>
void conv_direct(const ConvGeometry& g, const T* in, const T* weight, T* out) {
  for_each_runs(g, [=](const ConvRuns& runs) {
    runs.for_each_line(in, out, [&](const T* from, T* to) {
      add_scaled(weight[runs.weight], from, runs.step, to, 1, runs.count);
    });
  });
}

// Adds to `in_grad`, which holds zeros.
template <class T>
void conv_direct_input_grad(const ConvGeometry& g, const T* grad, const T* weight, T* in_grad) {
  for_each_runs(g, [=](const ConvRuns& runs) {
    runs.for_each_line(in_grad, grad, [&](T* to, const T* from) {
      add_scaled(weight[runs.weight], from, 1, to, runs.step, runs.count);
    });
  });
}

// Adds to `weight_grad`, which holds zeros. The products are summed in two vectors and a rest: a
// compiler may not change the order of a sum by itself.
template <class T>
void conv_direct_weight_grad(const ConvGeometry& g, const T* in, const T* grad, T* weight_grad) {
  constexpr std::int64_t kLanes = 16 / sizeof(T);
  for_each_runs(g, [=](const ConvRuns& runs) {
    T even[kLanes] = {};
    T odd[kLanes] = {};
    T rest = 0;
    runs.for_each_line(in, grad, [&](const T* a, const T* b) {
      std::int64_t x = 0;
      if (runs.step == 1) {
        for (; x + 2 * kLanes <= runs.count; x += 2 * kLanes) {
          for (std::int64_t l = 0; l < kLanes; ++l) even[l] += a[x + l] * b[x + l];
          for (std::int64_t l = kLanes; l < 2 * kLanes; ++l) odd[l - kLanes] += a[x + l] * b[x + l];
        }
      }
      for (; x < runs.count; ++x) rest += a[x * runs.step] * b[x];
    });
    for (std::int64_t l = 0; l < kLanes; ++l) rest += even[l] + odd[l];
    weight_grad[runs.weight] += rest;
  });
}

}  // namespace lockstep::detail
