// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/ops/kernels/blocks.hpp>
#include <lockstep/ops/kernels/vector_math.hpp>
#include <lockstep/ops/kernels/vector_rows.hpp>

#include <cmath>
#include <cstddef>

// x · Φ(x), where Φ is the distribution function of the standard normal, and what torch calls its
// approximation by tanh; both from Hendrycks and Gimpel, "Gaussian Error Linear Units".
namespace lockstep::detail {

inline constexpr double kInvSqrtTau = 0.39894228040143267794;   // 1/√(2π)
inline constexpr double kSqrtTwoByPi = 0.79788456080286535588;  // √(2/π)
inline constexpr double kGeluCubic = 0.044715;

// Each is made `from` x and values of transcendental functions, of arguments that are named after
// those: for one element, and for a block (ops/kernels/blocks.hpp). Ranges of f32 are computed
// otherwise (ops/kernels/vector_rows.hpp).
template <class T>
struct Gelu {
  LOCKSTEP_HD T operator()(T x) const { return from(x, std::erf(for_erf(x))); }
  void block(std::size_t count, T* out, const T* x) const {
    T erf[kBlockSize];
    vectorized::normal_erf(x, erf, count);
    map_block(from, out, x, erf);
  }
  bool range(std::size_t n, float* out, const float* x) const {
    return vectorized::gelu(x, out, n);
  }
  LOCKSTEP_HD static T for_erf(T x) { return x * static_cast<T>(vectorized::kSqrtHalf); }

 private:
  LOCKSTEP_HD static T from(T x, T erf) { return T(0.5) * x * (T(1) + erf); }
};

// The gradient times Φ(x) + x · φ(x).
template <class T>
struct GeluGradient {
  LOCKSTEP_HD T operator()(T grad, T x) const {
    return from(grad, x, std::erf(Gelu<T>::for_erf(x)), std::exp(for_exp(x)));
  }
  void block(std::size_t count, T* out, const T* grad, const T* x) const {
    T erf[kBlockSize];
    T exp[kBlockSize];
    map_block(for_exp, exp, x);
    vectorized::normal_erf(x, erf, count);
    vectorized::exp(exp, exp, count);
    map_block(from, out, grad, x, erf, exp);
  }
  bool range(std::size_t n, float* out, const float* grad, const float* x) const {
    return vectorized::gelu_grad(grad, x, out, n);
  }

 private:
  LOCKSTEP_HD static T for_exp(T x) { return T(-0.5) * x * x; }
  LOCKSTEP_HD static T from(T grad, T x, T erf, T exp) {
    const T distribution = T(0.5) * (T(1) + erf);
    const T density = static_cast<T>(kInvSqrtTau) * exp;
    return grad * (distribution + x * density);
  }
};

template <class T>
struct GeluTanh {
  LOCKSTEP_HD T operator()(T x) const { return from(x, std::tanh(for_tanh(x))); }
  void block(std::size_t count, T* out, const T* x) const {
    T tanh[kBlockSize];
    map_block(for_tanh, tanh, x);
    vectorized::tanh(tanh, tanh, count);
    map_block(from, out, x, tanh);
  }
  LOCKSTEP_HD static T for_tanh(T x) {
    return static_cast<T>(kSqrtTwoByPi) * (x + static_cast<T>(kGeluCubic) * x * x * x);
  }

 private:
  LOCKSTEP_HD static T from(T x, T tanh) { return T(0.5) * x * (T(1) + tanh); }
};

template <class T>
struct GeluTanhGradient {
  LOCKSTEP_HD T operator()(T grad, T x) const {
    return from(grad, x, std::tanh(GeluTanh<T>::for_tanh(x)));
  }
  void block(std::size_t count, T* out, const T* grad, const T* x) const {
    T tanh[kBlockSize];
    map_block(GeluTanh<T>::for_tanh, tanh, x);
    vectorized::tanh(tanh, tanh, count);
    map_block(from, out, grad, x, tanh);
  }

 private:
  LOCKSTEP_HD static T from(T grad, T x, T tanh) {
    const T slope = static_cast<T>(kSqrtTwoByPi) * (T(1) + static_cast<T>(3 * kGeluCubic) * x * x);
    return grad * T(0.5) * (T(1) + tanh + x * (T(1) - tanh * tanh) * slope);
  }
};

}  // namespace lockstep::detail
