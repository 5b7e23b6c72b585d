// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/host/blas.hpp>
#include <lockstep/backend/launch.hpp>
#include <lockstep/ops/conv_geometry.hpp>
#include <lockstep/ops/kernels/conv_direct_kernels.hpp>
#include <lockstep/ops/kernels/conv_tiles.hpp>
#include <lockstep/ops/kernels/padded_plane.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

// Convolution on the host as matrix products: the patches of an image that the kernel sees, written
// out as the columns of a matrix of [channels · kernel height · kernel width, output pixels]. Each
// group of channels has a product of its own, taken while its columns are in the cache. Groups of
// one output channel are summed directly, and tiles compute the passes of f32 that they fit.
namespace lockstep::detail {

// to[i] += from[i] for a run of a few elements, for which the start of a vectorised loop would cost
// more.
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

// The length of what the output sees through a kernel element if that is one run: from the first
// position to the last, with those between that see no pixel.
inline std::int64_t run_of(const ConvGeometry& g, Inside rows, Inside cols) {
  return (rows.size() - 1) * g.out_width + cols.size();
}

// Zeros for the output positions of the rows that see no pixel, since their column is outside: down
// the columns, as there are one or two of them, and a compiler makes calls of loops along the rows.
template <class T>
void clear_beside(const ConvGeometry& g, Inside rows, Inside cols, T* output) {
  const auto clear = [&](std::int64_t x) {
    for (std::int64_t y = rows.begin; y < rows.end; ++y) output[y * g.out_width + x] = T(0);
  };
  for (std::int64_t x = 0; x < cols.begin; ++x) clear(x);
  for (std::int64_t x = cols.end; x < g.out_width; ++x) clear(x);
}

// Writes the patches of one image, of one group's channels, as columns, `ld` elements from row to
// row.
template <class T>
void unfold(const ConvGeometry& g, const T* image, T* columns, std::int64_t ld) {
  const std::int64_t width = g.out_width;
  const std::int64_t step = g.stride_width;
  const std::int64_t line = g.line();
  const auto write = [&](const T* from, Inside rows, Inside cols, T* to) {
    if (rows.begin > 0) std::fill_n(to, rows.begin * width, T(0));
    if (rows.end < g.out_height) {
      std::fill_n(to + rows.end * width, (g.out_height - rows.end) * width, T(0));
    }
    if (g.keeps_lines()) {
      std::copy_n(from, run_of(g, rows, cols), to + rows.begin * width + cols.begin);
      clear_beside(g, rows, cols, to);
      return;
    }
    to += rows.begin * width;
    for (std::int64_t y = rows.begin; y < rows.end; ++y, to += width, from += line) {
      if (step == 1 && cols.size() == width) {
        copy_run(from, to, width);
        continue;
      }
      for (std::int64_t x = 0; x < cols.begin; ++x) to[x] = 0;
      for (std::int64_t x = cols.begin; x < cols.end; ++x) {
        to[x] = from[(x - cols.begin) * step];
      }
      for (std::int64_t x = cols.end; x < width; ++x) to[x] = 0;
    }
  };
  for_each_tap(g, [&](std::int64_t offset, Inside rows, Inside cols) {
    const bool sees_pixels = rows.size() > 0 && cols.size() > 0;
    for (std::int64_t c = 0; c < g.group_in(); ++c) {
      T* const to = columns + c * g.taps() * ld;
      if (sees_pixels) {
        write(image + c * g.plane() + offset, rows, cols, to);
      } else {
        std::fill_n(to, g.pixels(), T(0));
      }
    }
    columns += ld;
  });
}

// The transpose of unfold: adds each column element to the pixel that it came from. Those that came
// from none may be zeros afterwards.
template <class T>
void fold(const ConvGeometry& g, T* columns, std::int64_t ld, T* image) {
  const std::int64_t width = g.out_width;
  const std::int64_t step = g.stride_width;
  const std::int64_t line = g.line();
  const auto add = [&](const T* from, Inside rows, Inside cols, T* to) {
    from += rows.begin * width + cols.begin;
    if (g.keeps_lines()) return add_run(from, to, run_of(g, rows, cols));
    for (std::int64_t y = rows.begin; y < rows.end; ++y, to += line, from += width) {
      if (step == 1) {
        add_run(from, to, cols.size());
      } else {
        for (std::int64_t x = 0; x < cols.size(); ++x) to[x * step] += from[x];
      }
    }
  };
  for_each_tap(g, [&](std::int64_t offset, Inside rows, Inside cols) {
    T* const first = std::exchange(columns, columns + ld);
    if (rows.size() == 0 || cols.size() == 0) return;
    // In all channels before any is added: a vector that is read just after one of its elements was
    // written has to wait for it.
    for (std::int64_t c = 0; g.keeps_lines() && c < g.group_in(); ++c) {
      clear_beside(g, rows, cols, first + c * g.taps() * ld);
    }
    for (std::int64_t c = 0; c < g.group_in(); ++c) {
      add(first + c * g.taps() * ld, rows, cols, image + c * g.plane() + offset);
    }
  });
}

// A pass of a convolution: of images x, weights w and results y = w ⋆ x + bias, or of the gradients
// of some, it computes one from the other two, in this order. `work` is the host's work space, of
// the geometry's size or that of tiles: whoever makes it decides which, once.
template <class T, ConvPass pass>
struct ConvCall {
  View<const T> first, second;
  View<const T> bias;  // of results; may be empty
  View<T> work, out;
  ConvGeometry g;
  bool by_tiles = false;

  void operator()() const {
    if (out.size == 0) return;  // however many images
    if constexpr (std::is_same_v<T, float>) {
      if (by_tiles) {
        return conv_tiles(pass, g, first.data, second.data, bias.data, work.data, out.data);
      }
    }
    if constexpr (pass == ConvPass::forward) {
      forward(first.data, second.data);
    } else if constexpr (pass == ConvPass::input_grad) {
      input_grad(first.data, second.data);
    } else {
      weight_grad(first.data, second.data);
    }
  }

 private:
  T* results() const { return work.data + g.columns_size(); }
  T* transposed() const { return results() + g.results_size(); }

  void forward(const T* in, const T* weight) const {
    if (g.is_direct()) {
      return DirectConv<T>(g).forward(in, weight, bias.data, work.data, out.data);
    }
    for (std::int64_t first_image = 0; first_image < g.batch; first_image += g.images_at_once()) {
      const std::int64_t count = std::min(g.images_at_once(), g.batch - first_image);
      const T* const images = in + first_image * g.image();
      T* const to = out.data + first_image * g.result();
      if (g.images_at_once() > 1) {
        multiply(images, count, weight, T(0), results());
        scatter_results(count, to);
      } else {
        if (bias.data != nullptr) fill_bias(to);
        multiply(images, count, weight, bias.data == nullptr ? T(0) : T(1), to);
      }
    }
  }

  // Copies the results of `count` images, [channels, count · pixels], to their places in a batch,
  // and adds the bias on the way.
  void scatter_results(std::int64_t count, T* batch) const {
    const std::int64_t pixels = g.pixels();
    const T* from = results();
    for (std::int64_t o = 0; o < g.out_channels; ++o) {
      const T add = bias.data == nullptr ? T(0) : bias.data[o];
      for (std::int64_t i = 0; i < count; ++i, from += pixels) {
        T* const to = batch + i * g.result() + o * pixels;
        LOCKSTEP_INDEPENDENT
        for (std::int64_t p = 0; p < pixels; ++p) to[p] = from[p] + add;
      }
    }
  }

  void fill_bias(T* image) const {
    for (std::int64_t o = 0; o < g.out_channels; ++o, image += g.pixels()) {
      std::fill_n(image, g.pixels(), bias.data[o]);
    }
  }

  void multiply(const T* images, std::int64_t count, const T* weight, T beta, T* to) const {
    const std::int64_t ld = count * g.pixels();
    const std::int64_t outs = g.group_out();
    for (std::int64_t group = 0; group < g.groups; ++group) {
      unfold_group(images, count, group);
      host_gemm(false, false, outs, ld, g.patch(), T(1), weight + group * outs * g.patch(),
                g.patch(), static_cast<const T*>(work.data), ld, beta, to + group * outs * ld, ld);
    }
  }

  // Writes the columns of one group of `count` images side by side.
  void unfold_group(const T* images, std::int64_t count, std::int64_t group) const {
    images += group * g.group_in() * g.plane();
    for (std::int64_t i = 0; i < count; ++i) {
      unfold(g, images + i * g.image(), work.data + i * g.pixels(), count * g.pixels());
    }
  }

  // The gradients of so many results, side by side: as scatter_results takes them.
  const T* gathered(const T* grad, std::int64_t first_image, std::int64_t count) const {
    const T* const from = grad + first_image * g.result();
    if (g.images_at_once() == 1) return from;
    T* to = results();
    for (std::int64_t o = 0; o < g.out_channels; ++o) {
      for (std::int64_t i = 0; i < count; ++i, to += g.pixels()) {
        copy_run(from + i * g.result() + o * g.pixels(), to, g.pixels());
      }
    }
    return results();
  }

  void input_grad(const T* weight, const T* grad) const {
    std::fill_n(out.data, out.size, T(0));
    if (g.is_direct()) return DirectConv<T>(g).input_grad(grad, weight, work.data, out.data);
    const std::int64_t outs = g.group_out();
    for (std::int64_t first_image = 0; first_image < g.batch; first_image += g.images_at_once()) {
      const std::int64_t count = std::min(g.images_at_once(), g.batch - first_image);
      const std::int64_t ld = count * g.pixels();
      const T* const from = gathered(grad, first_image, count);
      for (std::int64_t group = 0; group < g.groups; ++group) {
        host_gemm(true, false, g.patch(), ld, outs, T(1), weight + group * outs * g.patch(),
                  g.patch(), from + group * outs * ld, ld, T(0), work.data, ld);
        T* const images = out.data + first_image * g.image() + group * g.group_in() * g.plane();
        for (std::int64_t i = 0; i < count; ++i) {
          fold(g, work.data + i * g.pixels(), ld, images + i * g.image());
        }
      }
    }
  }

  // A group's gradient is summed as [patch, outs], a form that the BLAS is faster at.
  void weight_grad(const T* in, const T* grad) const {
    if (g.batch == 0) return std::fill(out.data, out.data + out.size, T(0));
    if (g.is_direct()) return DirectConv<T>(g).weight_grad(in, grad, work.data, out.data);
    const std::int64_t outs = g.group_out();
    const std::int64_t patch = g.patch();
    for (std::int64_t first_image = 0; first_image < g.batch; first_image += g.images_at_once()) {
      const std::int64_t count = std::min(g.images_at_once(), g.batch - first_image);
      const std::int64_t ld = count * g.pixels();
      const T* const from = gathered(grad, first_image, count);
      for (std::int64_t group = 0; group < g.groups; ++group) {
        unfold_group(in + first_image * g.image(), count, group);
        host_gemm(false, true, patch, outs, ld, T(1), static_cast<const T*>(work.data), ld,
                  from + group * outs * ld, ld, first_image == 0 ? T(0) : T(1),
                  transposed() + group * outs * patch, outs);
      }
    }
    for (std::int64_t o = 0; o < g.out_channels; ++o) {
      const T* const sums = transposed() + o / outs * outs * patch + o % outs;
      for (std::int64_t p = 0; p < patch; ++p) out.data[o * patch + p] = sums[p * outs];
    }
  }
};

}  // namespace lockstep::detail
