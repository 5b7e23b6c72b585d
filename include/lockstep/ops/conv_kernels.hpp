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

// to[i] += from[i], where a run of a few elements is less than the start of a vectorised loop
// costs.
template <class T>
void add_run(const T* from, T* to, std::int64_t count) {
  constexpr std::int64_t kBlock = 16 / static_cast<std::int64_t>(sizeof(T));
  std::int64_t i = 0;
  if (count <= 4 * kBlock) {
    for (; i + kBlock <= count; i += kBlock) {
      T sum[kBlock];
      for (std::int64_t l = 0; l < kBlock; ++l) sum[l] = to[i + l] + from[i + l];
      std::memcpy(to + i, sum, sizeof sum);
    }
  }
  LOCKSTEP_INDEPENDENT
  for (std::int64_t l = i; l < count; ++l) to[l] += from[l];
}

// The output positions [begin, end) along one dimension that a kernel element sees inside the
// image.
struct Inside {
  std::int64_t begin, end;

  Inside(std::int64_t out, std::int64_t in, std::int64_t stride, std::int64_t offset) {
    const std::int64_t last = in - 1 - offset;
    begin = offset >= 0 ? 0 : std::min(out, (stride - 1 - offset) / stride);
    end = last < 0 ? begin : std::clamp(last / stride + 1, begin, out);
  }
};

// Calls plane(offset in the image, rows, columns of the output that lie inside, place in the
// columns) for each kernel element of each channel.
template <class T, class Plane>
void for_each_kernel_element(const ConvGeometry& g, T* columns, std::int64_t ld,
                             const Plane& plane) {
  for (std::int64_t c = 0; c < g.in_channels; ++c) {
    for (std::int64_t ky = 0; ky < g.kernel_height; ++ky) {
      const std::int64_t down = ky - g.padding_height;
      const Inside rows(g.out_height, g.in_height, g.stride_height, down);
      const std::int64_t top = c * g.in_height + rows.begin * g.stride_height + down;
      for (std::int64_t kx = 0; kx < g.kernel_width; ++kx, columns += ld) {
        const std::int64_t right = kx - g.padding_width;
        const Inside cols(g.out_width, g.in_width, g.stride_width, right);
        plane(top * g.in_width + cols.begin * g.stride_width + right, rows, cols, columns);
      }
    }
  }
}

// Writes the patches of one image as columns, `ld` elements from row to row.
template <class T>
void unfold(const ConvGeometry& g, const T* image, T* columns, std::int64_t ld) {
  const std::int64_t width = g.out_width;
  const std::int64_t size = g.pixels();
  const std::int64_t step = g.stride_width;
  const std::int64_t line = g.stride_height * g.in_width;
  for_each_kernel_element(
      g, columns, ld, [=](std::int64_t offset, Inside rows, Inside cols, T* to) {
        if (rows.begin == rows.end || cols.begin == cols.end) {
          std::fill_n(to, size, T(0));
          return;
        }
        std::fill_n(to, rows.begin * width, T(0));
        std::fill_n(to + rows.end * width, size - rows.end * width, T(0));
        to += rows.begin * width;
        const T* from = image + offset;
        if (step == 1 && cols.begin == 0 && cols.end == width) {
          for (std::int64_t y = rows.begin; y < rows.end; ++y, to += width, from += line) {
            copy_run(from, to, width);
          }
          return;
        }
        for (std::int64_t y = rows.begin; y < rows.end; ++y, to += width, from += line) {
          for (std::int64_t x = 0; x < cols.begin; ++x) to[x] = 0;
          for (std::int64_t x = cols.begin; x < cols.end; ++x) {
            to[x] = from[(x - cols.begin) * step];
          }
          for (std::int64_t x = cols.end; x < width; ++x) to[x] = 0;
        }
      });
}

// The transpose of unfold: adds each column element to the pixel that it came from.
template <class T>
void fold(const ConvGeometry& g, const T* columns, std::int64_t ld, T* image) {
  const std::int64_t width = g.out_width;
  const std::int64_t step = g.stride_width;
  const std::int64_t line = g.stride_height * g.in_width;
  for_each_kernel_element(
      g, columns, ld, [=](std::int64_t offset, Inside rows, Inside cols, const T* from) {
        if (rows.begin == rows.end || cols.begin == cols.end) return;
        const std::int64_t count = cols.end - cols.begin;
        from += rows.begin * width + cols.begin;
        T* to = image + offset;
        for (std::int64_t y = rows.begin; y < rows.end; ++y, to += line, from += width) {
          if (step == 1) {
            add_run(from, to, count);
          } else {
            for (std::int64_t x = 0; x < count; ++x) to[x * step] += from[x];
          }
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
  const std::int64_t pixels = g.pixels();
  for (std::int64_t o = 0; o < g.out_channels; ++o) {
    const T add = bias == nullptr ? T(0) : bias[o];
    for (std::int64_t i = 0; i < count; ++i, results += pixels) {
      T* const to = batch + i * g.result() + o * pixels;
      LOCKSTEP_INDEPENDENT
      for (std::int64_t p = 0; p < pixels; ++p) to[p] = results[p] + add;
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
