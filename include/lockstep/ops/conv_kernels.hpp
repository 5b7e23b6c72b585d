// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/host/blas.hpp>
#include <lockstep/backend/launch.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>

// Convolution as matrix products: the patches of an image that the kernel sees, written out as the
// columns of a matrix of [channels · kernel height · kernel width, output pixels].
namespace lockstep::detail {

struct ConvGeometry {
  std::int64_t batch, in_channels, in_height, in_width;
  std::int64_t out_channels, kernel_height, kernel_width;
  std::int64_t stride_height, stride_width, padding_height, padding_width;
  std::int64_t out_height, out_width;

  std::int64_t pixels() const { return out_height * out_width; }
  std::int64_t patch() const { return in_channels * kernel_height * kernel_width; }
  std::int64_t image() const { return in_channels * in_height * in_width; }
  std::int64_t result() const { return out_channels * pixels(); }

  // How many images are multiplied at once. A matrix of few columns is slow to multiply, one larger
  // than the cache is slow to write; about 256 columns are best, and an image that has them by
  // itself needs no rearranging of its result.
  std::int64_t group() const {
    constexpr std::int64_t kColumns = 256;
    return std::max<std::int64_t>(1, std::min(batch, kColumns / pixels()));
  }
  std::int64_t columns_size() const { return patch() * group() * pixels(); }
  // The results of a group side by side; none are needed for a single image.
  std::int64_t results_size() const { return group() == 1 ? 0 : group() * result(); }
};

// A run of a few elements, which is less than a call of memcpy costs.
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

// Calls row(pixel of the image or null where the row lies in the padding, first output column inside
// the image, one past the last, place in the columns) for each output row of each kernel element.
template <class Pixel, class T, class Row>
void for_each_patch_row(const ConvGeometry& g, Pixel* image, T* columns, std::int64_t ld,
                        const Row& row) {
  for (std::int64_t c = 0; c < g.in_channels; ++c, image += g.in_height * g.in_width) {
    for (std::int64_t ky = 0; ky < g.kernel_height; ++ky) {
      for (std::int64_t kx = 0; kx < g.kernel_width; ++kx, columns += ld) {
        const std::int64_t left = g.padding_width - kx;  // columns of padding to the left
        const std::int64_t stride = g.stride_width;
        const std::int64_t begin =
            left <= 0 ? 0 : std::min(g.out_width, (left + stride - 1) / stride);
        const std::int64_t last = g.in_width - 1 + left;
        const std::int64_t end =
            last < 0 ? begin : std::clamp(last / stride + 1, begin, g.out_width);
        T* at = columns;
        for (std::int64_t y = 0; y < g.out_height; ++y, at += g.out_width) {
          const std::int64_t in_y = y * g.stride_height + ky - g.padding_height;
          const bool inside = in_y >= 0 && in_y < g.in_height && begin < end;
          row(inside ? image + in_y * g.in_width + begin * stride - left : nullptr, begin, end, at);
        }
      }
    }
  }
}

// Writes the patches of one image as columns, `ld` elements from row to row.
template <class T>
void unfold(const ConvGeometry& g, const T* image, T* columns, std::int64_t ld) {
  for_each_patch_row(g, image, columns, ld,
                     [&g](const T* from, std::int64_t begin, std::int64_t end, T* to) {
                       if (from == nullptr) {
                         std::fill_n(to, g.out_width, T(0));
                         return;
                       }
                       for (std::int64_t x = 0; x < begin; ++x) to[x] = 0;
                       if (g.stride_width == 1) {
                         copy_run(from, to + begin, end - begin);
                       } else {
                         for (std::int64_t x = begin; x < end; ++x, from += g.stride_width) {
                           to[x] = *from;
                         }
                       }
                       for (std::int64_t x = end; x < g.out_width; ++x) to[x] = 0;
                     });
}

// The transpose of unfold: adds each column element to the pixel that it came from.
template <class T>
void fold(const ConvGeometry& g, const T* columns, std::int64_t ld, T* image) {
  for_each_patch_row(g, image, columns, ld,
                     [&g](T* to, std::int64_t begin, std::int64_t end, const T* from) {
                       if (to == nullptr) return;
                       const std::int64_t stride = g.stride_width;
                       if (stride == 1) {
                         LOCKSTEP_INDEPENDENT
                         for (std::int64_t x = 0; x < end - begin; ++x) to[x] += from[begin + x];
                       } else {
                         for (std::int64_t x = begin; x < end; ++x, to += stride) *to += from[x];
                       }
                     });
}

// The results of `count` images, [channels, count · pixels], from and to their places in the batch.
template <class T>
void gather_results(const ConvGeometry& g, const T* batch, std::int64_t count, T* results) {
  for (std::int64_t o = 0; o < g.out_channels; ++o) {
    for (std::int64_t i = 0; i < count; ++i, results += g.pixels()) {
      copy_run(batch + i * g.result() + o * g.pixels(), results, g.pixels());
    }
  }
}

template <class T>
void scatter_results(const ConvGeometry& g, const T* results, std::int64_t count, const T* bias,
                     T* batch) {
  for (std::int64_t o = 0; o < g.out_channels; ++o) {
    const T add = bias == nullptr ? T(0) : bias[o];
    for (std::int64_t i = 0; i < count; ++i, results += g.pixels()) {
      T* const to = batch + i * g.result() + o * g.pixels();
      LOCKSTEP_INDEPENDENT
      for (std::int64_t p = 0; p < g.pixels(); ++p) to[p] = results[p] + add;
    }
  }
}

// out = weight ⋆ in + bias. `columns` and `results` are work space of the geometry's sizes.
template <class T>
struct ConvForward {
  View<const T> in, weight, bias;
  View<T> columns, results, out;
  ConvGeometry g;

  void operator()() const {
    const std::int64_t pixels = g.pixels();
    for (std::int64_t first = 0; first < g.batch; first += g.group()) {
      const std::int64_t count = std::min(g.group(), g.batch - first);
      const std::int64_t ld = count * pixels;
      for (std::int64_t i = 0; i < count; ++i) {
        unfold(g, in.data + (first + i) * g.image(), columns.data + i * pixels, ld);
      }
      T* const to = out.data + first * g.result();
      if (g.group() > 1) {
        multiply(ld, T(0), results.data);
        scatter_results(g, results.data, count, bias.data, to);
      } else if (bias.data != nullptr) {
        for (std::int64_t o = 0; o < g.out_channels; ++o) {
          std::fill_n(to + o * pixels, pixels, bias.data[o]);
        }
        multiply(ld, T(1), to);
      } else {
        multiply(ld, T(0), to);
      }
    }
  }

 private:
  void multiply(std::int64_t ld, T beta, T* to) const {
    host_gemm(false, false, g.out_channels, ld, g.patch(), T(1), weight.data, g.patch(),
              static_cast<const T*>(columns.data), ld, beta, to, ld);
  }
};

// The gradient of the input from that of the output.
template <class T>
struct ConvInputGrad {
  View<const T> grad, weight;
  View<T> columns, results, in_grad;
  ConvGeometry g;

  void operator()() const {
    std::fill_n(in_grad.data, in_grad.size, T(0));
    for (std::int64_t first = 0; first < g.batch; first += g.group()) {
      const std::int64_t count = std::min(g.group(), g.batch - first);
      const std::int64_t ld = count * g.pixels();
      const T* from = grad.data + first * g.result();
      if (g.group() > 1) {
        gather_results(g, from, count, results.data);
        from = results.data;
      }
      host_gemm(true, false, g.patch(), ld, g.out_channels, T(1), weight.data, g.patch(), from, ld,
                T(0), columns.data, ld);
      for (std::int64_t i = 0; i < count; ++i) {
        fold(g, static_cast<const T*>(columns.data) + i * g.pixels(), ld,
             in_grad.data + (first + i) * g.image());
      }
    }
  }
};

// The gradient of the weight from that of the output. It is summed as [patch, out_channels] in
// `transposed`, a form that the BLAS is faster at.
template <class T>
struct ConvWeightGrad {
  View<const T> in, grad;
  View<T> columns, results, transposed, weight_grad;
  ConvGeometry g;

  void operator()() const {
    const std::int64_t pixels = g.pixels();
    const std::int64_t outs = g.out_channels;
    if (g.batch == 0) std::fill_n(transposed.data, transposed.size, T(0));
    for (std::int64_t first = 0; first < g.batch; first += g.group()) {
      const std::int64_t count = std::min(g.group(), g.batch - first);
      const std::int64_t ld = count * pixels;
      for (std::int64_t i = 0; i < count; ++i) {
        unfold(g, in.data + (first + i) * g.image(), columns.data + i * pixels, ld);
      }
      const T* from = grad.data + first * g.result();
      if (g.group() > 1) {
        gather_results(g, from, count, results.data);
        from = results.data;
      }
      host_gemm(false, true, g.patch(), outs, ld, T(1), static_cast<const T*>(columns.data), ld,
                from, ld, first == 0 ? T(0) : T(1), transposed.data, outs);
    }
    for (std::int64_t o = 0; o < outs; ++o) {
      for (std::int64_t p = 0; p < g.patch(); ++p) {
        weight_grad.data[o * g.patch() + p] = transposed.data[p * outs + o];
      }
    }
  }
};

}  // namespace lockstep::detail
