// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <algorithm>
#include <cstdint>

// The sizes of a convolution, and which elements meet in it.
namespace lockstep::detail {

// What a convolution computes: its result, or a gradient. With stride 1 the gradient of the images
// is itself a convolution, of the output's gradient with the kernels rotated.
enum class ConvPass : std::uint8_t { forward, input_grad, weight_grad };

struct ConvGeometry {
  std::int64_t batch, in_channels, in_height, in_width;
  std::int64_t out_channels, kernel_height, kernel_width;
  std::int64_t stride_height, stride_width, padding_height, padding_width;
  std::int64_t dilation_height, dilation_width, groups;
  std::int64_t out_height, out_width;

  std::int64_t taps() const { return kernel_height * kernel_width; }
  std::int64_t plane() const { return in_height * in_width; }
  std::int64_t pixels() const { return out_height * out_width; }
  std::int64_t image() const { return in_channels * plane(); }
  std::int64_t result() const { return out_channels * pixels(); }

  // The channels that a group reads and that it writes, and the terms of an output element.
  std::int64_t group_in() const { return in_channels / groups; }
  std::int64_t group_out() const { return out_channels / groups; }
  std::int64_t patch() const { return group_in() * taps(); }

  // The rows of an image with its padding that the kernel sees, and their length.
  std::int64_t padded_rows() const {
    return (out_height - 1) * stride_height + (kernel_height - 1) * dilation_height + 1;
  }
  std::int64_t padded_width() const {
    return (out_width - 1) * stride_width + (kernel_width - 1) * dilation_width + 1;
  }
  // The rows and columns of an image that the kernel sees; less than 1 where it sees padding alone.
  std::int64_t seen_rows() const { return std::min(in_height, padded_rows() - padding_height); }
  std::int64_t seen_columns() const { return std::min(in_width, padded_width() - padding_width); }

  // True if padded images are nearly all padding, because of a large dilation or stride: they may
  // then be too large for memory, and their size for a number.
  bool is_mostly_padding() const {
    constexpr double kMost = 16;
    const double padded = static_cast<double>(padded_rows()) * static_cast<double>(padded_width());
    return padded > kMost * static_cast<double>(plane() + pixels());
  }

  // True if the host uses plain loops: for products of a single row, writing the columns out would
  // cost more than the sums.
  bool is_direct() const { return groups > 1 && group_out() == 1 && !is_mostly_padding(); }

  // True if the pixels that two output rows see through one kernel element are as far apart in
  // memory as the rows themselves: then all that the output sees through it is one run.
  bool keeps_lines() const {
    return stride_width == 1 && stride_height == 1 && in_width == out_width;
  }
  // How far apart those pixels are, in elements; 0 if the second one is always outside.
  std::int64_t line() const { return stride_height < in_height ? stride_height * in_width : 0; }

  // How many images the host multiplies at once. A matrix of few columns is slow to multiply, and
  // one larger than the cache slow to write: about 256 columns are best, and an image that has as
  // many alone needs no rearranging of its result.
  std::int64_t images_at_once() const {
    constexpr std::int64_t kColumns = 256;
    return std::max<std::int64_t>(1, std::min(batch, kColumns / pixels()));
  }
  // The size of the columns of one group of these images, with which the host's work space begins.
  // What follows begins on a cache line.
  std::int64_t columns_size() const { return whole_lines(patch() * images_at_once() * pixels()); }
  // The size of the results of several images side by side; 0 for one image.
  std::int64_t results_size() const {
    return images_at_once() == 1 ? 0 : whole_lines(images_at_once() * result());
  }
  // The size of the gradient of the weight, of every group as [patch, channels].
  std::int64_t transposed_size(ConvPass pass) const {
    return pass == ConvPass::weight_grad ? patch() * out_channels : 0;
  }

 private:
  static std::int64_t whole_lines(std::int64_t elements) { return (elements + 15) / 16 * 16; }
};

// The output positions [begin, end) along one dimension at which a kernel element is inside the
// image.
struct Inside {
  std::int64_t begin, end;

  Inside(std::int64_t out, std::int64_t in, std::int64_t stride, std::int64_t offset) {
    const std::int64_t last = in - 1 - offset;
    begin = offset >= 0 ? 0 : std::min(out, (stride - 1 - offset) / stride);
    end = last < 0 ? begin : std::clamp(last / stride + 1, begin, out);
  }

  std::int64_t size() const { return end - begin; }
};

// Calls visit(offset in the plane, rows and columns of the output that lie inside) for each kernel
// element of one channel, in order.
template <class Visit>
void for_each_tap(const ConvGeometry& g, const Visit& visit) {
  for (std::int64_t ky = 0; ky < g.kernel_height; ++ky) {
    const std::int64_t down = ky * g.dilation_height - g.padding_height;
    const Inside rows(g.out_height, g.in_height, g.stride_height, down);
    const std::int64_t top = rows.size() > 0 ? rows.begin * g.stride_height + down : 0;
    for (std::int64_t kx = 0; kx < g.kernel_width; ++kx) {
      const std::int64_t right = kx * g.dilation_width - g.padding_width;
      const Inside cols(g.out_width, g.in_width, g.stride_width, right);
      visit(top * g.in_width + cols.begin * g.stride_width + right, rows, cols);
    }
  }
}

}  // namespace lockstep::detail
