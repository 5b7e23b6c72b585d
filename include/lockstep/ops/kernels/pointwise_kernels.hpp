// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/host_device.hpp>
#include <lockstep/backend/launch.hpp>
#include <lockstep/ops/kernels/blocks.hpp>
#include <lockstep/ops/kernels/elementwise_kernels.hpp>
#include <lockstep/ops/kernels/vector_math.hpp>
#include <lockstep/ops/kernels/vector_rows.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <type_traits>

// Functions of one element.
namespace lockstep::detail {

// A NaN is neither below 0 nor above: it stays one, and its gradient passes, as in torch.
template <class T>
struct Relu {
  LOCKSTEP_HD T operator()(T x) const { return x < T{} ? T{} : x; }
};
template <class T>
struct ReluGradient {
  LOCKSTEP_HD T operator()(T grad, T y) const { return y <= T{} ? T{} : grad; }
};

// Sums of two parts, one of which is 0: compilers make vectors of that, and jumps of a choice. The
// slope is finite.
template <class T>
struct LeakyRelu {
  T slope;
  LOCKSTEP_HD T operator()(T x) const { return (x < T{} ? T{} : x) + slope * (x < T{} ? x : T{}); }
};
template <class T>
struct LeakyReluGradient {
  T slope;
  LOCKSTEP_HD T operator()(T grad, T x) const {
    return (x > T{} ? grad : T{}) + slope * (x > T{} ? T{} : grad);
  }
};

// As in torch, a NaN stays one; its gradient is 0.
template <class T>
struct Clamp {
  T min;
  T max;
  LOCKSTEP_HD T operator()(T x) const {
    const T low = x > min || x != x ? x : min;  // a NaN among the three is the result
    return low < max || low != low ? low : max;
  }
};
template <class T>
struct ClampGradient {
  T min;
  T max;
  bool has_min;
  bool has_max;
  LOCKSTEP_HD T operator()(T grad, T x) const {
    return (!has_min || x > min) && (!has_max || x < max) ? grad : T{};
  }
};

template <class T>
struct Exp {
  LOCKSTEP_HD T operator()(T x) const { return std::exp(x); }
  void block(std::size_t n, T* y, const T* x) const { vectorized::exp(x, y, n); }
};
template <class T>
struct Log {
  LOCKSTEP_HD T operator()(T x) const { return std::log(x); }
  void block(std::size_t n, T* y, const T* x) const { vectorized::log(x, y, n); }
};
template <class T>
struct Sqrt {
  LOCKSTEP_HD T operator()(T x) const { return std::sqrt(x); }
  void block(std::size_t n, T* y, const T* x) const { vectorized::sqrt(x, y, n); }
};
template <class T>
struct Tanh {
  LOCKSTEP_HD T operator()(T x) const { return std::tanh(x); }
  void block(std::size_t n, T* y, const T* x) const { vectorized::tanh(x, y, n); }
};
template <class T>
struct Sigmoid {
  LOCKSTEP_HD T operator()(T x) const { return T{1} / (T{1} + std::exp(-x)); }
  void block(std::size_t n, T* y, const T* x) const { vectorized::sigmoid(x, y, n); }
};
template <class T>
struct Silu {
  LOCKSTEP_HD T operator()(T x) const { return x * Sigmoid<T>{}(x); }
  void block(std::size_t n, T* y, const T* x) const {
    T sigmoid[kBlockSize];
    std::copy_n(x, kBlockSize, sigmoid);
    vectorized::sigmoid(sigmoid, sigmoid, n);
    map_block(Times<T>{}, y, x, sigmoid);
  }
};
template <class T>
struct SiluGradient {
  LOCKSTEP_HD T operator()(T grad, T x) const { return from(grad, x, Sigmoid<T>{}(x)); }
  void block(std::size_t n, T* out, const T* grad, const T* x) const {
    T sigmoid[kBlockSize];
    std::copy_n(x, kBlockSize, sigmoid);
    vectorized::sigmoid(sigmoid, sigmoid, n);
    map_block(from, out, grad, x, sigmoid);
  }

 private:
  LOCKSTEP_HD static T from(T grad, T x, T sigmoid) {
    return grad * (sigmoid * (T{1} + x * (T{1} - sigmoid)));
  }
};
// 1 / √(x + eps)
template <class T>
struct InverseRoot {
  T eps;
  LOCKSTEP_HD T operator()(T x) const { return T{1} / std::sqrt(x + eps); }
};
// Gradients from the results.
template <class T>
struct InverseRootGradient {
  LOCKSTEP_HD T operator()(T grad, T y) const { return grad * (y * y * y) * T(-0.5); }
};
template <class T>
struct TanhGradient {
  LOCKSTEP_HD T operator()(T grad, T y) const { return grad * (T{1} - y * y); }
};
template <class T>
struct SigmoidGradient {
  LOCKSTEP_HD T operator()(T grad, T y) const { return grad * ((T{1} - y) * y); }
};
// The powers that torch computes by products and roots are computed so here, too: of −0 and −∞ that
// does not always give what std::pow gives.
template <class T>
struct Pow {
  T exponent;
  LOCKSTEP_HD T operator()(T x) const { return power(x, exponent); }
  void block(std::size_t n, T* y, const T* x) const {
    if (block_of<0>(y, x) || block_of<1>(y, x) || block_of<2>(y, x) || block_of<4>(y, x) ||
        block_of<6>(y, x) || block_of<-1>(y, x) || block_of<-2>(y, x) || block_of<-4>(y, x)) {
      return;
    }
    for (std::size_t i = 0; i < n; ++i) y[i] = std::pow(x[i], exponent);
  }

 private:
  LOCKSTEP_HD static T power(T x, T exponent) {
    if (exponent == T(0)) return T{1};
    if (exponent == T(0.5)) return std::sqrt(x);
    if (exponent == T(1)) return x;
    if (exponent == T(2)) return x * x;
    if (exponent == T(3)) return x * x * x;
    if (exponent == T(-0.5)) return T{1} / std::sqrt(x);
    if (exponent == T(-1)) return T{1} / x;
    if (exponent == T(-2)) return T{1} / (x * x);
    return std::pow(x, exponent);
  }

  // The block, in a loop without a choice, if the exponent is halves / 2.
  template <int halves>
  bool block_of(T* y, const T* x) const {
    if (exponent != T(halves) / 2) return false;
    map_block([](T value) { return power(value, T(halves) / 2); }, y, x);
    return true;
  }
};
template <class T>
struct Square {
  LOCKSTEP_HD T operator()(T x) const { return Times<T>{}(x, x); }
};
template <class T>
struct Abs {
  LOCKSTEP_HD T operator()(T x) const {
    if constexpr (std::is_integral_v<T>) {
      return x < T{} ? Minus<T>{}(T{}, x) : x;
    } else {
      return std::abs(x);
    }
  }
};
template <class T>
struct Sign {
  LOCKSTEP_HD T operator()(T x) const {
    return static_cast<T>(static_cast<int>(x > T{}) - static_cast<int>(x < T{}));
  }
};

}  // namespace lockstep::detail
