// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/host/blas.hpp>
#include <lockstep/ops/conv_geometry.hpp>
#include <lockstep/ops/kernels/conv_tiles.hpp>
#include <lockstep/ops/kernels/padded_plane.hpp>
#include <lockstep/ops/kernels/tiles.hpp>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace lockstep::detail {

// The images of a pass by tiles that are in the work space at once, as many as fit the cache beside
// what they are multiplied with.
inline std::int64_t images_in_cache(const ConvGeometry& g, std::int64_t floats) {
  constexpr std::int64_t kFloats = 8192;
  return std::clamp<std::int64_t>(kFloats / floats, 1, std::max<std::int64_t>(g.batch, 1));
}

// Of `count` rows, `step` apart, those that lie in the image if the first of them is row `first` of
// the padded one, or `last`, or one between.
inline Inside rows_inside(const ConvGeometry& g, std::int64_t count, std::int64_t step,
                          std::int64_t first, std::int64_t last) {
  Inside rows(count, g.in_height, step, last - g.padding_height);
  rows.end = std::max(rows.end, Inside(count, g.in_height, step, first - g.padding_height).end);
  return rows;
}

// A convolution of the batch, group by group. The work space holds the kernels of a group as panels
// of [kernel element, channel, width], a row of bias, padded images as [channel, row, column], and
// the result of a panel as [image, pixel, width].
class ForwardTiles {
 public:
  explicit ForwardTiles(const ConvGeometry& geometry)
      : g(geometry), kernel_(tiles::Kernel::fit(g.out_width, g.group_out())) {
    if (kernel_.run == nullptr || g.is_mostly_padding()) return;
    plane_ = PaddedPlane(g, g.out_width);
    at_once_ = images_in_cache(g, g.group_in() * plane_.size);
  }

  std::int64_t size() const {
    constexpr std::int64_t kFewest = 64;  // a sum of fewer terms costs less than turning it round
    constexpr std::int64_t kMost = std::int64_t{1} << 20;  // more panels leave the cache in between
    if (at_once_ == 0 || g.patch() < kFewest) return 0;
    const std::int64_t panels = kernel_.panels(g.group_out()) * panel();
    if (panels > kMost) return 0;
    return panels + kernel_.width +
           at_once_ * (g.group_in() * plane_.size + g.pixels() * kernel_.width);
  }

  // `kernels_of(group, out channel, channel)` are its kernel elements, those of the next output
  // channel `next` floats further; `turned`: the last first.
  template <class KernelsOf>
  void operator()(const float* in, const float* bias, const KernelsOf& kernels_of,
                  std::int64_t next, bool turned, float* work, float* out) const {
    const std::int64_t width = kernel_.width;
    const std::int64_t outs = g.group_out();
    float* const panels = work;
    float* const row = panels + kernel_.panels(outs) * panel();
    float* const images = row + width;
    float* const results = images + at_once_ * g.group_in() * plane_.size;
    std::fill(panels, results, 0.0F);
    const std::vector<tiles::Terms> terms = terms_of_elements();
    for (std::int64_t group = 0; group < g.groups; ++group) {
      const std::int64_t element = g.group_in() * width;
      for (std::int64_t o = 0; o < outs; o += width) {
        float* const to = panels + o / width * panel() + (turned ? (g.taps() - 1) * element : 0);
        for (std::int64_t c = 0; c < g.group_in(); ++c) {
          tiles::transpose(kernels_of(group, o, c), next, std::min(width, outs - o), g.taps(),
                           to + c * width, turned ? -element : element);
        }
      }
      for (std::int64_t first = 0; first < g.batch; first += at_once_) {
        const std::int64_t count = std::min(at_once_, g.batch - first);
        for (std::int64_t i = 0; i < count * g.group_in(); ++i) {
          const std::int64_t image = first + i / g.group_in();
          const std::int64_t channel = group * g.group_in() + i % g.group_in();
          plane_.fill(g, in + image * g.image() + channel * g.plane(), images + i * plane_.size);
        }
        for (std::int64_t o = 0; o < outs; o += width) {
          const std::int64_t columns = std::min(width, outs - o);
          const std::int64_t channel = group * outs + o;
          if (bias != nullptr) std::copy_n(bias + channel, columns, row);
          multiply(terms, images, count, row, panels + o / width * panel(), results);
          for (std::int64_t i = 0; i < count; ++i) {
            tiles::transpose(results + i * g.pixels() * width, width, g.pixels(), columns,
                             out + (first + i) * g.result() + channel * g.pixels(), g.pixels());
          }
        }
      }
    }
  }

 private:
  std::int64_t panel() const { return g.patch() * kernel_.width; }

  std::vector<tiles::Terms> terms_of_elements() const {
    std::vector<tiles::Terms> terms;
    for (std::int64_t t = 0; t < g.taps(); ++t) {
      terms.push_back({plane_.place(g, t), t * g.group_in() * kernel_.width});
    }
    return terms;
  }

  // The tiles of a panel. Segments follow each other along a row, then from image to image, then
  // down, so that those of a tile see the padding above and below together.
  void multiply(const std::vector<tiles::Terms>& terms, const float* images, std::int64_t count,
                const float* row, const float* panel, float* results) const {
    tiles::Segment segments[tiles::Kernel::kMostSegments];
    std::int64_t top = 0;  // the row of the first segment
    std::int64_t ready = 0;
    const auto run = [&](std::int64_t bottom) {
      const Inside rows = rows_inside(g, g.kernel_height, g.dilation_height, top * g.stride_height,
                                      bottom * g.stride_height);
      kernel_({.terms = terms.data() + rows.begin * g.kernel_width,
               .count = std::max<std::int64_t>(rows.size(), 0) * g.kernel_width,
               .length = g.group_in(),
               .step = plane_.size,
               .panel = panel,
               .initial = row,
               .out_step = kernel_.width},
              segments, ready);
      ready = 0;
    };
    for (std::int64_t y = 0; y < g.out_height; ++y) {
      for (std::int64_t i = 0; i < count; ++i) {
        const float* const from =
            images + i * g.group_in() * plane_.size + y * g.stride_height * plane_.row;
        float* const to = results + (i * g.pixels() + y * g.out_width) * kernel_.width;
        for (std::int64_t part = 0; part < kernel_.parts(g.out_width); ++part) {
          const std::int64_t x = kernel_.begin(part, g.out_width);
          if (ready == 0) top = y;
          segments[ready++] = {from + x, to + x * kernel_.width};
          if (ready == kernel_.segments) run(y);
        }
      }
    }
    if (ready > 0) run(g.out_height - 1);
  }

  const ConvGeometry g;
  const tiles::Kernel kernel_;
  PaddedPlane plane_;
  std::int64_t at_once_ = 0;  // images; 0 if tiles do not fit
};

// The gradient of the weights of a batch, group by group. The work space holds sums as panels of
// [kernel element, channel, width], padded images as [row, column, channel], gradients of the
// output as panels of [image, pixel, width], and an image as [pixel, channel].
class WeightTiles {
 public:
  explicit WeightTiles(const ConvGeometry& geometry)
      : g(geometry), kernel_(tiles::Kernel::fit(g.group_in(), g.group_out())) {
    if (kernel_.run == nullptr || g.is_mostly_padding()) return;
    row_ = g.padded_width() * g.group_in();
    image_ = g.padded_rows() * row_;
    at_once_ = images_in_cache(g, image_ + g.pixels() * kernel_.width);
  }

  std::int64_t size() const {
    if (at_once_ == 0 || g.group_in() % kernel_.rows != 0) return 0;
    return kernel_.panels(g.group_out()) * (sums() + at_once_ * grads()) + at_once_ * image_ +
           g.plane() * g.group_in();
  }

  void operator()(const float* in, const float* grad, float* work, float* weight_grad) const {
    const std::int64_t width = kernel_.width;
    const std::int64_t outs = g.group_out();
    float* const panels = work;
    float* const images = panels + kernel_.panels(outs) * sums();
    float* const gradients = images + at_once_ * image_;
    float* const turned = gradients + kernel_.panels(outs) * at_once_ * grads();
    for (std::int64_t group = 0; group < g.groups; ++group) {
      std::fill(panels, turned, 0.0F);
      for (std::int64_t first = 0; first < g.batch; first += at_once_) {
        const std::int64_t count = std::min(at_once_, g.batch - first);
        for (std::int64_t i = 0; i < count; ++i) {
          pad(in + (first + i) * g.image() + group * g.group_in() * g.plane(), turned,
              images + i * image_);
          for (std::int64_t o = 0; o < outs; o += width) {
            tiles::transpose(grad + (first + i) * g.result() + (group * outs + o) * g.pixels(),
                             g.pixels(), std::min(width, outs - o), g.pixels(),
                             gradients + (o / width * at_once_ + i) * grads(), width);
          }
        }
        const std::vector<tiles::Terms> terms = terms_of_rows(count);
        for (std::int64_t p = 0; p < kernel_.panels(outs); ++p) {
          multiply(terms, count, images, gradients + p * at_once_ * grads(), panels + p * sums());
        }
      }
      for (std::int64_t o = 0; o < outs; ++o) {
        const float* const from = panels + o / width * sums() + o % width;
        float* const to = weight_grad + (group * outs + o) * g.patch();
        for (std::int64_t c = 0; c < g.group_in(); ++c) {
          for (std::int64_t t = 0; t < g.taps(); ++t) {
            to[c * g.taps() + t] = from[(t * g.group_in() + c) * width];
          }
        }
      }
    }
  }

 private:
  std::int64_t sums() const { return g.patch() * kernel_.width; }
  std::int64_t grads() const { return g.pixels() * kernel_.width; }

  void pad(const float* from, float* turned, float* to) const {
    tiles::transpose(from, g.plane(), g.group_in(), g.plane(), turned, g.group_in());
    const std::int64_t rows = g.seen_rows();
    const std::int64_t columns = g.seen_columns();
    to += g.padding_height * row_ + g.padding_width * g.group_in();
    for (std::int64_t y = 0; y < rows; ++y, turned += g.in_width * g.group_in(), to += row_) {
      std::copy_n(turned, std::max<std::int64_t>(columns, 0) * g.group_in(), to);
    }
  }

  // A run is a row of output pixels; runs of one row in all images follow each other.
  std::vector<tiles::Terms> terms_of_rows(std::int64_t count) const {
    std::vector<tiles::Terms> terms;
    for (std::int64_t y = 0; y < g.out_height; ++y) {
      for (std::int64_t i = 0; i < count; ++i) {
        terms.push_back({i * image_ + y * g.stride_height * row_,
                         i * grads() + y * g.out_width * kernel_.width});
      }
    }
    return terms;
  }

  void multiply(const std::vector<tiles::Terms>& terms, std::int64_t count, const float* images,
                const float* gradients, float* panel) const {
    tiles::Segment segments[tiles::Kernel::kMostSegments];
    std::int64_t top = 0;  // the kernel row of the first segment
    std::int64_t ready = 0;
    const auto run = [&](std::int64_t bottom) {
      const Inside rows = rows_inside(g, g.out_height, g.stride_height, top * g.dilation_height,
                                      bottom * g.dilation_height);
      kernel_({.terms = terms.data() + rows.begin * count,
               .count = std::max<std::int64_t>(rows.size(), 0) * count,
               .length = g.out_width,
               .step = g.stride_width * g.group_in(),
               .panel = gradients,
               .initial = nullptr,
               .out_step = kernel_.width},
              segments, ready);
      ready = 0;
    };
    for (std::int64_t t = 0; t < g.taps(); ++t) {
      const std::int64_t down = t / g.kernel_width;
      const float* const from = images + down * g.dilation_height * row_ +
                                t % g.kernel_width * g.dilation_width * g.group_in();
      for (std::int64_t c = 0; c < g.group_in(); c += kernel_.rows) {
        if (ready == 0) top = down;
        segments[ready++] = {from + c, panel + (t * g.group_in() + c) * kernel_.width};
        if (ready == kernel_.segments) run(down);
      }
    }
    if (ready > 0) run(g.kernel_height - 1);
  }

  const ConvGeometry g;
  const tiles::Kernel kernel_;
  std::int64_t row_ = 0, image_ = 0;
  std::int64_t at_once_ = 0;  // images; 0 if tiles do not fit
};

// The convolution that gives the gradient of the images of another one.
inline ConvGeometry turned_round(ConvGeometry g) {
  std::swap(g.in_channels, g.out_channels);
  std::swap(g.in_height, g.out_height);
  std::swap(g.in_width, g.out_width);
  g.padding_height = (g.kernel_height - 1) * g.dilation_height - g.padding_height;
  g.padding_width = (g.kernel_width - 1) * g.dilation_width - g.padding_width;
  return g;
}

LOCKSTEP_INLINE std::int64_t conv_tiles_size(ConvPass pass, const ConvGeometry& g) {
  // The columns of a kernel of one element are the image: a BLAS is as fast. So are several threads
  // of it.
  if (g.is_direct() || g.taps() == 1 || host_math_threads() != 1) return 0;
  if (g.group_in() == 0 || g.group_out() == 0) return 0;
  if (pass == ConvPass::forward) return ForwardTiles(g).size();
  if (pass == ConvPass::weight_grad) return WeightTiles(g).size();
  const ConvGeometry turned = turned_round(g);
  const bool is_one = g.stride_height == 1 && g.stride_width == 1 && turned.padding_height >= 0 &&
                      turned.padding_width >= 0;
  return is_one ? ForwardTiles(turned).size() : 0;
}

LOCKSTEP_INLINE void conv_tiles(ConvPass pass, const ConvGeometry& g, const float* first,
                                const float* second, const float* bias, float* work, float* out) {
  if (pass == ConvPass::forward) {
    const auto kernels_of = [&](std::int64_t group, std::int64_t o, std::int64_t c) {
      return second + (group * g.group_out() + o) * g.patch() + c * g.taps();
    };
    ForwardTiles{g}(first, bias, kernels_of, g.patch(), false, work, out);
  } else if (pass == ConvPass::input_grad) {
    const auto kernels_of = [&](std::int64_t group, std::int64_t o, std::int64_t c) {
      return first + (group * g.group_out() + c) * g.patch() + o * g.taps();
    };
    ForwardTiles{turned_round(g)}(second, nullptr, kernels_of, g.taps(), true, work, out);
  } else {
    WeightTiles{g}(first, second, work, out);
  }
}

}  // namespace lockstep::detail
