// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/host_device.hpp>

#include <cmath>

// x · Φ(x), where Φ is the distribution function of the standard normal, and what torch calls its
// approximation by tanh; both from Hendrycks and Gimpel, "Gaussian Error Linear Units".
namespace lockstep::detail {

inline constexpr double kSqrtHalf = 0.70710678118654752440;
inline constexpr double kInvSqrtTau = 0.39894228040143267794;   // 1/√(2π)
inline constexpr double kSqrtTwoByPi = 0.79788456080286535588;  // √(2/π)
inline constexpr double kGeluCubic = 0.044715;

template <class T>
struct Gelu {
  LOCKSTEP_HD T operator()(T x) const {
    return T(0.5) * x * (T(1) + std::erf(x * static_cast<T>(kSqrtHalf)));
  }
};
// The gradient times Φ(x) + x · φ(x).
template <class T>
struct GeluGradient {
  LOCKSTEP_HD T operator()(T grad, T x) const {
    const T distribution = T(0.5) * (T(1) + std::erf(x * static_cast<T>(kSqrtHalf)));
    const T density = static_cast<T>(kInvSqrtTau) * std::exp(T(-0.5) * x * x);
    return grad * (distribution + x * density);
  }
};

template <class T>
struct GeluTanh {
  LOCKSTEP_HD T operator()(T x) const {
    const T inner = static_cast<T>(kSqrtTwoByPi) * (x + static_cast<T>(kGeluCubic) * x * x * x);
    return T(0.5) * x * (T(1) + std::tanh(inner));
  }
};
template <class T>
struct GeluTanhGradient {
  LOCKSTEP_HD T operator()(T grad, T x) const {
    const T square = x * x;
    const T inner = static_cast<T>(kSqrtTwoByPi) * x * (T(1) + static_cast<T>(kGeluCubic) * square);
    const T slope = static_cast<T>(kSqrtTwoByPi) * (T(1) + static_cast<T>(3 * kGeluCubic) * square);
    const T tanh = std::tanh(inner);
    return grad * T(0.5) * (T(1) + tanh + x * (T(1) - tanh * tanh) * slope);
  }
};

}  // namespace lockstep::detail
