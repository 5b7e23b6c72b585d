// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/ops/kernels/axis.hpp>
#include <lockstep/ops/kernels/channel_norm_kernels.hpp>
#include <lockstep/ops/kernels/pointwise_kernels.hpp>

#include <cstddef>
#include <cstdint>

// What batch normalisation computes for each channel, between the sums over the batch and the
// normalisation of its elements: for a GPU the arithmetic is nothing and each launch counts.
namespace lockstep::detail {

// Running statistics that move towards those of a batch; absent where a View is empty.
template <class T>
struct RunningViews {
  View<T> mean;
  View<T> var;
  View<std::int64_t> batches;  // how many they have moved towards
  T kept;
  T momentum;

  LOCKSTEP_HD void move(std::size_t c, T batch_mean, T batch_var) const {
    mean[c] = mean[c] * kept + momentum * batch_mean;
    var[c] = var[c] * kept + momentum * batch_var;
  }

  LOCKSTEP_HD void count() const {
    if (batches.size > 0) ++batches[0];
  }
};

// For statistics of a batch of which only a part is at hand.
template <class T>
struct MoveRunningKernel {
  View<const T> mean;
  View<const T> unbiased;
  View<const T> present;  // 0 if the batch is empty, otherwise 1; may be empty
  RunningViews<T> running;

  LOCKSTEP_HD void operator()(std::size_t c) const {
    if (running.mean.size > 0 && (present.size == 0 || present[0] != T(0))) {
      running.move(c, mean[c], unbiased[c]);
    }
    if (c == 0) running.count();
  }
};

// For those of a whole batch, which is normalised next.
template <class T>
struct BatchScaleKernel {
  View<const T> mean;
  View<const T> var;
  View<const T> weight;  // may be empty
  View<T> inverse;       // of the deviation
  View<T> scale;         // the weight, divided by the deviation
  RunningViews<T> running;
  T eps;
  T unbiased;  // of the variance: what it is to be multiplied by

  LOCKSTEP_HD void operator()(std::size_t c) const {
    set_scale(c);
    if (running.mean.size > 0) running.move(c, mean[c], var[c] * unbiased);
    if (c == 0) running.count();
  }

  void on_host(std::size_t count) const {
    LOCKSTEP_INDEPENDENT
    for (std::size_t c = 0; c < count; ++c) set_scale(c);
    if (running.mean.size > 0) {
      LOCKSTEP_INDEPENDENT
      for (std::size_t c = 0; c < count; ++c) running.move(c, mean[c], var[c] * unbiased);
    }
    if (count > 0) running.count();
  }

 private:
  LOCKSTEP_HD void set_scale(std::size_t c) const {
    const T root = InverseRoot<T>{eps}(var[c]);
    inverse[c] = root;
    scale[c] = weight.size == 0 ? root : root * weight[c];
  }
};

// The gradients of what a channel has, given two sums over its elements.
template <class T>
struct BatchGradientKernel {
  View<const T> total;  // Σ grad
  View<const T> dot;    // Σ grad · (x − mean)
  View<const T> inverse;
  View<const T> scale;
  View<T> weight;  // its gradient; may be empty
  View<T> slope;   // for ChannelGradientCall; may be empty
  View<T> shift;   // likewise
  T share;         // of an element in the mean of its channel

  LOCKSTEP_HD void operator()(std::size_t c) const {
    if (weight.size > 0) weight[c] = dot[c] * inverse[c];
    if (slope.size > 0) {
      slope[c] = -(scale[c] * (inverse[c] * inverse[c]) * dot[c] * share);
      shift[c] = -(scale[c] * total[c] * share);
    }
  }
};

// out = grad · scale[c] + (x − mean[c]) · slope[c] + shift[c]: the gradient of x, to which all of
// its channel contributes through the statistics.
template <class T>
struct ChannelGradientCall {
  View<const T> grad;
  View<const T> x;
  View<const T> mean;
  View<const T> scale;
  View<const T> slope;
  View<const T> shift;
  View<T> out;
  Axis axis;

  LOCKSTEP_HD auto of_channel(std::size_t c) const {
    return [above = grad.data, value = x.data, middle = mean[c], factor = scale[c], by = slope[c],
            offset = shift[c]](std::size_t i) {
      return above[i] * factor + ((value[i] - middle) * by + offset);
    };
  }
  void operator()() const {
    map_channels(axis, out.data, [this](std::size_t c) { return of_channel(c); });
  }
};

}  // namespace lockstep::detail
