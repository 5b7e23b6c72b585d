// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/ops/kernels/channel_norm_kernels.hpp>
#include <lockstep/ops/kernels/channel_sum_kernel.hpp>
#include <lockstep/ops/kernels/vector_math.hpp>
#include <lockstep/tensor/shape.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <type_traits>
#include <vector>

namespace lockstep::detail {

// The rows of [rows, width], each normalised by its own mean and variance, which are summed in
// double.
template <class T>
struct LayerNormCall {
  View<const T> in;
  View<const T> weight;  // may be empty
  View<const T> bias;    // may be empty
  View<T> out;
  View<T> rows;  // [2, rows]: the means, and 1 / √(variance + eps)
  std::size_t width;
  double eps;

  LOCKSTEP_HD View<T> mean() const { return {rows.data, rows.size / 2}; }
  LOCKSTEP_HD View<T> inverse() const { return {rows.data + rows.size / 2, rows.size / 2}; }

  void operator()() const;

 private:
  // The squares are of the differences from the mean as it is rounded, so that nothing cancels, and
  // a row of equal elements has a variance of 0.
  void normalise(std::size_t row) const {
    const T* const x = in.data + row * width;
    T* const to = out.data + row * width;
    const auto count = static_cast<double>(width);
    const T middle = static_cast<T>(
        sum_of_terms(width, [x](std::size_t c) { return static_cast<double>(x[c]); }) / count);
    const double var = sum_of_terms(width, [x, middle](std::size_t c) {
      const double apart = static_cast<double>(x[c]) - static_cast<double>(middle);
      return apart * apart;
    });
    const T factor = static_cast<T>(1 / std::sqrt(var / count + eps));
    mean()[row] = middle;
    inverse()[row] = factor;
    const auto write = [&](const auto& affine) {
      LOCKSTEP_INDEPENDENT
      for (std::size_t c = 0; c < width; ++c) to[c] = affine((x[c] - middle) * factor, c);
    };
    if (weight.size > 0 && bias.size > 0) {
      write([this](T value, std::size_t c) { return value * weight[c] + bias[c]; });
    } else if (weight.size > 0) {
      write([this](T value, std::size_t c) { return value * weight[c]; });
    } else if (bias.size > 0) {
      write([this](T value, std::size_t c) { return value + bias[c]; });
    } else {
      write([](T value, std::size_t) { return value; });
    }
  }
};

// What its backward computes: with y the normalised row and g the gradient times the weight, the
// input's gradient is (g − mean(g) − y · mean(g · y)) · inverse; the weight's is the sum of
// gradient · y over the rows, the bias's that of the gradient.
template <class T>
struct LayerNormGradCall {
  View<const T> grad;
  View<const T> in;
  View<const T> weight;  // may be empty
  View<const T> rows;    // as in LayerNormCall
  View<T> out;           // the input's gradient; empty if nobody wants it
  View<T> weight_grad;   // likewise
  View<T> bias_grad;     // likewise
  std::size_t width;

  LOCKSTEP_HD View<const T> mean() const { return {rows.data, rows.size / 2}; }
  LOCKSTEP_HD View<const T> inverse() const { return {rows.data + rows.size / 2, rows.size / 2}; }

  void operator()() const;

 private:
  static constexpr std::size_t kLanes = 8;  // sums side by side, as in sum_of_terms

  template <class Weighted>
  void of_input(std::size_t row, const Weighted& weighted) const {
    const T* const g = grad.data + row * width;
    const T* const x = in.data + row * width;
    T* const to = out.data + row * width;
    const T middle = mean()[row];
    const T factor = inverse()[row];
    const auto normalised = [=](std::size_t c) { return (x[c] - middle) * factor; };
    std::array<double, kLanes> gradients{};
    std::array<double, kLanes> products{};
    const auto add = [&](std::size_t c, std::size_t lane) {
      const T above = weighted(g[c], c);
      gradients[lane] += static_cast<double>(above);
      products[lane] += static_cast<double>(above * normalised(c));
    };
    std::size_t c = 0;
    for (; c + kLanes <= width; c += kLanes) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) add(c + lane, lane);
    }
    for (std::size_t lane = 0; c < width; ++c, ++lane) add(c, lane);
    const T shift = mean_of(gradients);
    const T slope = mean_of(products);
    LOCKSTEP_INDEPENDENT
    for (std::size_t i = 0; i < width; ++i) {
      to[i] = (weighted(g[i], i) - shift - normalised(i) * slope) * factor;
    }
  }

  T mean_of(const std::array<double, kLanes>& sums) const {
    return static_cast<T>(std::accumulate(sums.begin(), sums.end(), 0.0) /
                          static_cast<double>(width));
  }

  void of_weight(std::size_t row, double* sums) const {
    const T* const g = grad.data + row * width;
    const T* const x = in.data + row * width;
    const T middle = mean()[row];
    const T factor = inverse()[row];
    LOCKSTEP_INDEPENDENT
    for (std::size_t c = 0; c < weight_grad.size; ++c) {
      sums[c] += static_cast<double>(g[c] * ((x[c] - middle) * factor));
    }
  }
};

namespace vectorized {

// Those of f32, as ops/kernels/vector_rows.hpp has it.
bool layer_norm(const LayerNormCall<float>& rows, Instructions by = best_instructions());
bool layer_norm_grad(const LayerNormGradCall<float>& rows, Instructions by = best_instructions());

}  // namespace vectorized

template <class T>
void LayerNormCall<T>::operator()() const {
  if constexpr (std::is_same_v<T, float>) {
    if (vectorized::layer_norm(*this)) return;
  }
  for (std::size_t row = 0; row < mean().size; ++row) normalise(row);
}

template <class T>
void LayerNormGradCall<T>::operator()() const {
  if constexpr (std::is_same_v<T, float>) {
    if (vectorized::layer_norm_grad(*this)) return;
  }
  // A row goes into both gradients while it is in the cache.
  std::vector<double> sums(weight_grad.size);
  for (std::size_t row = 0; row < mean().size; ++row) {
    if (out.size > 0 && weight.size > 0) {
      of_input(row, [this](T g, std::size_t c) { return g * weight[c]; });
    } else if (out.size > 0) {
      of_input(row, [](T g, std::size_t) { return g; });
    }
    of_weight(row, sums.data());
  }
  for (std::size_t c = 0; c < weight_grad.size; ++c) weight_grad[c] = static_cast<T>(sums[c]);
  if (bias_grad.size == 0) return;
  const Shape shape{static_cast<std::int64_t>(mean().size), static_cast<std::int64_t>(width)};
  ChannelSumCall<T>{grad, bias_grad, Axis(shape, 1)}();
}

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/kernels/impl/layer_norm_kernels.ipp>
#endif
