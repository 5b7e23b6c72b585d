// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/ops/kernels/layer_norm_kernels.hpp>
#include <lockstep/ops/kernels/vector_lanes.hpp>
#include <lockstep/ops/kernels/vector_math.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace lockstep::detail::vectorized {

#if defined(LOCKSTEP_LIBMVEC)

// As LOCKSTEP_VECTOR_LANES.
#define LOCKSTEP_LAYER_NORM_ROWS(BY, INSTRUCTIONS)                                            \
  namespace BY {                                                                              \
  [[gnu::target(INSTRUCTIONS)]] inline void layer_norm(const LayerNormCall<float>& rows) {    \
    const auto width = rows.width;                                                            \
    const auto count = static_cast<double>(width);                                            \
    const float* const weight = rows.weight.data;                                             \
    const float* const bias = rows.bias.data;                                                 \
    float room[kLanes];                                                                       \
    for (std::size_t row = 0; row < rows.mean().size; ++row) {                                \
      const float* const x = rows.in.data + row * width;                                      \
      float* const out = rows.out.data + row * width;                                         \
      D low{};                                                                                \
      D high{};                                                                               \
      for (std::size_t i = 0; i < width; i += kLanes) {                                       \
        const float* from = x + i;                                                            \
        if (i + kLanes > width) {                                                             \
          const std::size_t at = width - kLanes;                                              \
          write(room, rest_of(read(x + at), i - at, 0));                                      \
          from = room;                                                                        \
        }                                                                                     \
        low += widened(from);                                                                 \
        high += widened(from + kLanes / 2);                                                   \
      }                                                                                       \
      const float middle = static_cast<float>(total(low + high) / count);                     \
      const D wide_middle = D{} + static_cast<double>(middle);                                \
      low = D{};                                                                              \
      high = D{};                                                                             \
      for (std::size_t i = 0; i < width; i += kLanes) {                                       \
        const float* from = x + i;                                                            \
        if (i + kLanes > width) {                                                             \
          const std::size_t at = width - kLanes;                                              \
          write(room, rest_of(read(x + at), i - at, middle));                                 \
          from = room;                                                                        \
        }                                                                                     \
        const D a = widened(from) - wide_middle;                                              \
        const D b = widened(from + kLanes / 2) - wide_middle;                                 \
        low += a * a;                                                                         \
        high += b * b;                                                                        \
      }                                                                                       \
      const double var = total(low + high) / count;                                           \
      const float factor = static_cast<float>(1 / std::sqrt(var + rows.eps));                 \
      rows.mean()[row] = middle;                                                              \
      rows.inverse()[row] = factor;                                                           \
      for (std::size_t i = 0; i < width; i += kLanes) {                                       \
        const std::size_t at = std::min(i, width - kLanes);                                   \
        V y = (read(x + at) - middle) * factor;                                               \
        if (weight != nullptr) y *= read(weight + at);                                        \
        if (bias != nullptr) y += read(bias + at);                                            \
        write(out + at, y);                                                                   \
      }                                                                                       \
    }                                                                                         \
  }                                                                                           \
                                                                                              \
  [[gnu::target(INSTRUCTIONS)]] inline void layer_norm_input_grad(                            \
      const LayerNormGradCall<float>& rows, std::size_t row) {                                \
    const auto width = rows.width;                                                            \
    const float* const weight = rows.weight.data;                                             \
    const float* const grad = rows.grad.data + row * width;                                   \
    const float* const x = rows.in.data + row * width;                                        \
    float* const out = rows.out.data + row * width;                                           \
    const float middle = rows.mean()[row];                                                    \
    const float factor = rows.inverse()[row];                                                 \
    D gradients{};                                                                            \
    D products{};                                                                             \
    for (std::size_t first = 0; first < width; first += kChunk) {                             \
      V gradients_part{};                                                                     \
      V products_part{};                                                                      \
      for (std::size_t i = first; i < std::min(first + kChunk, width); i += kLanes) {         \
        const std::size_t at = std::min(i, width - kLanes);                                   \
        V g = read(grad + at);                                                                \
        if (weight != nullptr) g *= read(weight + at);                                        \
        if (at != i) g = rest_of(g, i - at, 0);                                               \
        gradients_part += g;                                                                  \
        products_part += g * ((read(x + at) - middle) * factor);                              \
      }                                                                                       \
      gradients += wide_sum(gradients_part);                                                  \
      products += wide_sum(products_part);                                                    \
    }                                                                                         \
    const float shift = static_cast<float>(total(gradients) / static_cast<double>(width));    \
    const float slope = static_cast<float>(total(products) / static_cast<double>(width));     \
    for (std::size_t i = 0; i < width; i += kLanes) {                                         \
      const std::size_t at = std::min(i, width - kLanes);                                     \
      V g = read(grad + at);                                                                  \
      if (weight != nullptr) g *= read(weight + at);                                          \
      write(out + at, (g - shift - (read(x + at) - middle) * factor * slope) * factor);       \
    }                                                                                         \
  }                                                                                           \
                                                                                              \
  /* The sums of some columns' gradients over the rows from `begin` to `end`. */              \
  struct ColumnSums {                                                                         \
    double weight[kColumnsOfSums];                                                            \
    double bias[kColumnsOfSums];                                                              \
  };                                                                                          \
  [[gnu::target(INSTRUCTIONS)]] inline void add_columns(const LayerNormGradCall<float>& rows, \
                                                        std::size_t begin, std::size_t end,   \
                                                        std::size_t first, std::size_t count, \
                                                        ColumnSums& sums) {                   \
    const float* const mean = rows.mean().data;                                               \
    const float* const inverse = rows.inverse().data;                                         \
    for (std::size_t i = 0; i < count; i += kLanes) {                                         \
      const std::size_t at = std::min(i, count - kLanes);                                     \
      V weight{};                                                                             \
      V bias{};                                                                               \
      for (std::size_t row = begin; row < end; ++row) {                                       \
        const std::size_t place = row * rows.width + first + at;                              \
        const V g = read(rows.grad.data + place);                                             \
        weight += g * ((read(rows.in.data + place) - mean[row]) * inverse[row]);              \
        bias += g;                                                                            \
      }                                                                                       \
      if (at != i) {                                                                          \
        weight = rest_of(weight, i - at, 0);                                                  \
        bias = rest_of(bias, i - at, 0);                                                      \
      }                                                                                       \
      add_wide(sums.weight + at, weight);                                                     \
      add_wide(sums.bias + at, bias);                                                         \
    }                                                                                         \
  }                                                                                           \
                                                                                              \
  /* The last columns of very long rows may overlap those before. */                          \
  [[gnu::target(INSTRUCTIONS)]] inline void layer_norm_grad(                                  \
      const LayerNormGradCall<float>& rows) {                                                 \
    const bool sums_columns = rows.weight_grad.size > 0 || rows.bias_grad.size > 0;           \
    const std::size_t columns = std::min(kColumnsOfSums, rows.width);                         \
    for (std::size_t i = 0; i < rows.width; i += columns) {                                   \
      if (i > 0 && !sums_columns) return;                                                     \
      const std::size_t first = std::min(i, rows.width - columns);                            \
      ColumnSums sums{};                                                                      \
      for (std::size_t row = 0; row < rows.mean().size; row += kRowsTogether) {               \
        const std::size_t end = std::min(row + kRowsTogether, rows.mean().size);              \
        if (i == 0 && rows.out.size > 0) {                                                    \
          for (std::size_t r = row; r < end; ++r) layer_norm_input_grad(rows, r);             \
        }                                                                                     \
        if (sums_columns) add_columns(rows, row, end, first, columns, sums);                  \
      }                                                                                       \
      const auto round = [columns](const double* from, float* to) {                           \
        for (std::size_t c = 0; c < columns; ++c) to[c] = static_cast<float>(from[c]);        \
      };                                                                                      \
      if (rows.weight_grad.size > 0) round(sums.weight, rows.weight_grad.data + first);       \
      if (rows.bias_grad.size > 0) round(sums.bias, rows.bias_grad.data + first);             \
    }                                                                                         \
  }                                                                                           \
  }
LOCKSTEP_LAYER_NORM_ROWS(rows_by_sse2, "sse2")
LOCKSTEP_LAYER_NORM_ROWS(rows_by_avx2, "avx2,fma")
LOCKSTEP_LAYER_NORM_ROWS(rows_by_avx512, "avx512f,avx512dq")
#undef LOCKSTEP_LAYER_NORM_ROWS

#endif

LOCKSTEP_INLINE bool layer_norm(const LayerNormCall<float>& x, Instructions by) {
  if (x.width < kLeastRow) return false;
  LOCKSTEP_BY_INSTRUCTIONS(layer_norm, x);
}

LOCKSTEP_INLINE bool layer_norm_grad(const LayerNormGradCall<float>& x, Instructions by) {
  if (x.width < kLeastRow) return false;
  LOCKSTEP_BY_INSTRUCTIONS(layer_norm_grad, x);
}

}  // namespace lockstep::detail::vectorized
