// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/ops/conv_geometry.hpp>
#include <lockstep/ops/kernels/padded_plane.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

namespace lockstep::detail {

// Convolution on the host by its definition, where each group has one output channel, as in a
// depthwise convolution: runs of a row of results are summed over the kernel elements. The work
// space holds a group's padded planes, a channel of results whose rows are whole runs, and a run
// for each kernel element.
template <class T>
class DirectConv {
 public:
  explicit DirectConv(const ConvGeometry& geometry) : g(geometry) {
    for (std::int64_t c = 0; c < g.group_in(); ++c) {
      for (std::int64_t t = 0; t < g.taps(); ++t) {
        places_.push_back(c * plane_.size + plane_.place(g, t));
      }
    }
  }

  // The elements of work space that a pass needs.
  static std::int64_t size(const ConvGeometry& g) {
    const std::int64_t width = whole_runs(g);
    return g.group_in() * PaddedPlane(g, width).size + g.out_height * width + g.patch() * kRun;
  }

  void forward(const T* in, const T* weight, const T* bias, T* work, T* out) const {
    std::fill_n(work, planes(), T(0));
    for_each_group([&](std::int64_t group, const Places& first) {
      fill(in + first.image, work);
      const T* const kernel = weight + group * g.patch();
      const T add = bias == nullptr ? T(0) : bias[group];
      T* const to = out + first.result;
      if (g.out_height < kRows) {
        for (std::int64_t y = 0; y < g.out_height; ++y) sum_rows<1>(kernel, add, y, work, to);
      } else {  // the last rows may be among those before
        for (std::int64_t y = 0; y < g.out_height; y += kRows) {
          sum_rows<kRows>(kernel, add, std::min(y, g.out_height - kRows), work, to);
        }
      }
    });
  }

  // Writes the elements of `in_grad` that the kernel sees; it holds zeros.
  void input_grad(const T* grad, const T* weight, T* work, T* in_grad) const {
    T* const results = work + planes();
    std::fill_n(results, g.out_height * width_, T(0));
    for_each_group([&](std::int64_t group, const Places& first) {
      std::fill_n(work, planes(), T(0));
      read_results(grad + first.result, results);
      // All rows for one kernel element, then for the next: a vector that is read just after one of
      // its elements was written has to wait for it.
      for (std::int64_t t = 0; t < g.patch(); ++t) {
        const T scale = weight[group * g.patch() + t];
        for (std::int64_t y = 0; y < g.out_height; ++y) {
          T* const to = work + y * g.stride_height * plane_.row + place(t);
          for (std::int64_t x = 0; x < width_; x += kRun) {
            const Run sums = run_at(to + x) + scale * run_at(results + y * width_ + x);
            std::memcpy(to + x, &sums, sizeof sums);
          }
        }
      }
      for (std::int64_t c = 0; c < g.group_in(); ++c) {
        plane_.read(g, work + c * plane_.size, in_grad + first.image + c * g.plane());
      }
    });
  }

  void weight_grad(const T* in, const T* grad, T* work, T* weight_grad) const {
    T* const results = work + planes();
    T* const sums = results + g.out_height * width_;  // a run for each kernel element
    std::fill_n(work, size(g), T(0));
    for_each_group([&](std::int64_t group, const Places& first) {
      fill(in + first.image, work);
      read_results(grad + first.result, results);
      for (std::int64_t t = 0; t < g.patch(); ++t) {
        Run sum = run_at(sums + t * kRun);
        for (std::int64_t y = 0; y < g.out_height; ++y) {
          const T* const row = work + y * g.stride_height * plane_.row + place(t);
          for (std::int64_t x = 0; x < width_; x += kRun) {
            sum += run_at(row + x) * run_at(results + y * width_ + x);
          }
        }
        std::memcpy(sums + t * kRun, &sum, sizeof sum);
      }
      if (!first.of_last_image) return;
      for (std::int64_t t = 0; t < g.patch(); ++t) {
        T* const lanes = sums + t * kRun;
        weight_grad[group * g.patch() + t] = std::accumulate(lanes, lanes + kRun, T(0));
        std::fill_n(lanes, kRun, T(0));
      }
    });
  }

 private:
  // The width of the widest vector that the compiler may use.
  static constexpr std::size_t kRunBytes = __BIGGEST_ALIGNMENT__;
  using Run [[gnu::vector_size(kRunBytes)]] = T;
  static constexpr std::int64_t kRun = kRunBytes / sizeof(T);
  static constexpr std::int64_t kRows = 4;

  // Where a group's channels of an image begin, and its results.
  struct Places {
    std::int64_t image, result;
    bool of_last_image;
  };

  // Sums so many rows of results, from row y on: side by side, since in a single sum each addition
  // would wait for the one before.
  template <std::int64_t rows>
  void sum_rows(const T* kernel, T add, std::int64_t y, const T* planes, T* results) const {
    const std::int64_t next = g.stride_height * plane_.row;
    for (std::int64_t begin = 0; begin < g.out_width; begin += kRun) {
      const std::int64_t x = std::min(begin, std::max<std::int64_t>(g.out_width - kRun, 0));
      Run sums[rows];
      for (Run& sum : sums) sum = Run{} + add;
      for (std::int64_t t = 0; t < g.patch(); ++t) {
        const T* const from = planes + y * next + place(t) + x;
        for (std::int64_t r = 0; r < rows; ++r) sums[r] += kernel[t] * run_at(from + r * next);
      }
      for (std::int64_t r = 0; r < rows; ++r) {
        T* const to = results + (y + r) * g.out_width + x;
        if (g.out_width >= kRun) {
          std::memcpy(to, &sums[r], sizeof(Run));
        } else {
          copy_run(reinterpret_cast<const T*>(&sums[r]), to, g.out_width);
        }
      }
    }
  }

  static Run run_at(const T* from) {
    Run run;
    std::memcpy(&run, from, sizeof run);
    return run;
  }
  static std::int64_t whole_runs(const ConvGeometry& g) {
    return (g.out_width + kRun - 1) / kRun * kRun;
  }
  std::int64_t place(std::int64_t tap) const { return places_[static_cast<std::size_t>(tap)]; }
  std::int64_t planes() const { return g.group_in() * plane_.size; }

  // Calls visit(group, Places) for each image of each group.
  template <class Visit>
  void for_each_group(const Visit& visit) const {
    for (std::int64_t group = 0; group < g.groups; ++group) {
      for (std::int64_t n = 0; n < g.batch; ++n) {
        visit(group, Places{n * g.image() + group * g.group_in() * g.plane(),
                            n * g.result() + group * g.pixels(), n + 1 == g.batch});
      }
    }
  }

  void fill(const T* channels, T* planes) const {
    for (std::int64_t c = 0; c < g.group_in(); ++c) {
      plane_.fill(g, channels + c * g.plane(), planes + c * plane_.size);
    }
  }
  void read_results(const T* channel, T* results) const {
    for (std::int64_t y = 0; y < g.out_height; ++y) {
      copy_run(channel + y * g.out_width, results + y * width_, g.out_width);
    }
  }

  const ConvGeometry g;
  const std::int64_t width_ = whole_runs(g);
  const PaddedPlane plane_{g, width_};
  std::vector<std::int64_t> places_;  // of the kernel elements, from a result's place on
};

}  // namespace lockstep::detail
