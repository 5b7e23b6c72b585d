// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/ops/kernels/vector_math.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>

// The kernels of optimisers' steps, for each element of a parameter.
namespace lockstep::detail {

// A gradient plus weight decay. Without decay the parameter is ignored: it may be infinite, and 0
// times infinity is NaN.
template <class T>
LOCKSTEP_HD T decayed(T gradient, T weight_decay, T parameter) {
  return gradient + weight_decay * (weight_decay == 0 ? T{} : parameter);
}

template <class T>
struct SgdKernel {
  View<T> parameter;
  View<const T> gradient;
  T lr;
  T weight_decay;

  LOCKSTEP_HD void operator()(std::size_t i) const {
    const T value = parameter[i];
    parameter[i] = value - lr * decayed(gradient[i], weight_decay, value);
  }
};

template <class T>
struct SgdMomentumKernel {
  View<T> parameter;
  View<T> velocity;
  View<const T> gradient;
  T lr;
  T weight_decay;
  T momentum;
  T share;  // the gradient's factor in the velocity: 1 − dampening, but 1 in the first step
  bool nesterov;

  LOCKSTEP_HD void operator()(std::size_t i) const {
    const T value = parameter[i];
    const T slope = decayed(gradient[i], weight_decay, value);
    const T speed = momentum * velocity[i] + share * slope;
    velocity[i] = speed;
    parameter[i] = value - lr * (nesterov ? slope + momentum * speed : speed);
  }
};

template <class T>
struct AdamKernel {
  View<T> parameter;
  View<T> mean;
  View<T> square;
  View<const T> gradient;
  T kept;          // the parameter's factor: 1 − lr · weight_decay if decoupled, else 1
  T weight_decay;  // through the gradient
  T beta1;
  T rest1;  // 1 − beta1, rounded after the subtraction
  T beta2;
  T rest2;
  T step_size;   // lr / (1 − beta1^t)
  T root_scale;  // 1 / √(1 − beta2^t)
  T eps;

  LOCKSTEP_HD void operator()(std::size_t i) const {
    const T value = kept * parameter[i];
    const T slope = decayed(gradient[i], weight_decay, value);
    const T first = beta1 * mean[i] + rest1 * slope;
    const T second = beta2 * square[i] + rest2 * slope * slope;
    mean[i] = first;
    square[i] = second;
    parameter[i] = value - step_size * first / (std::sqrt(second) * root_scale + eps);
  }

  // The same, block by block, with vectorised square roots.
  void on_host(std::size_t begin, std::size_t end) const {
    constexpr std::size_t kBlock = 256;
    T roots[kBlock];
    for (; begin < end; begin += kBlock) {
      const std::size_t count = std::min(end - begin, kBlock);
      T* const p = parameter.data + begin;
      T* const m = mean.data + begin;
      T* const s = square.data + begin;
      const T* const g = gradient.data + begin;
      LOCKSTEP_INDEPENDENT
      for (std::size_t i = 0; i < count; ++i) {
        p[i] = kept * p[i];
        const T slope = decayed(g[i], weight_decay, p[i]);
        m[i] = beta1 * m[i] + rest1 * slope;
        s[i] = beta2 * s[i] + rest2 * slope * slope;
      }
      vectorized::sqrt(s, roots, count);
      LOCKSTEP_INDEPENDENT
      for (std::size_t i = 0; i < count; ++i) {
        p[i] -= step_size * m[i] / (roots[i] * root_scale + eps);
      }
    }
  }
};

}  // namespace lockstep::detail
