// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/kernels/elementwise.hpp>
#include <lockstep/cuda/launch/kernel_list.hpp>
#include <lockstep/ops/kernels/pointwise_kernels.hpp>

#include <cstdint>

namespace lockstep::cuda {

template <class T>
struct NumericPointwise : UnaryKernels<T, T, lockstep::detail::Relu<T>, lockstep::detail::Abs<T>,
                                       lockstep::detail::Square<T>, lockstep::detail::Clamp<T>> {};
template <class T>
struct FloatingPointwise : UnaryKernels<T, T, lockstep::detail::Exp<T>, lockstep::detail::Log<T>,
                                        lockstep::detail::Sqrt<T>, lockstep::detail::Tanh<T>,
                                        lockstep::detail::Sigmoid<T>, lockstep::detail::Pow<T>,
                                        lockstep::detail::Sign<T>, lockstep::detail::InverseRoot<T>,
                                        lockstep::detail::Silu<T>, lockstep::detail::LeakyRelu<T>> {
};

template <template <class, class, class...> class List>
struct PointwiseGradients
    : Join<typename List<
               float, float, lockstep::detail::ReluGradient<float>,
               lockstep::detail::TanhGradient<float>, lockstep::detail::SigmoidGradient<float>,
               lockstep::detail::InverseRootGradient<float>, lockstep::detail::ClampGradient<float>,
               lockstep::detail::SiluGradient<float>,
               lockstep::detail::LeakyReluGradient<float>>::type,
           typename List<
               double, double, lockstep::detail::ReluGradient<double>,
               lockstep::detail::TanhGradient<double>, lockstep::detail::SigmoidGradient<double>,
               lockstep::detail::InverseRootGradient<double>,
               lockstep::detail::ClampGradient<double>, lockstep::detail::SiluGradient<double>,
               lockstep::detail::LeakyReluGradient<double>>::type> {};

using PointwiseKernels =
    Join<NumericPointwise<float>::type, NumericPointwise<double>::type,
         NumericPointwise<std::int64_t>::type, NumericPointwise<std::int32_t>::type,
         FloatingPointwise<float>::type, FloatingPointwise<double>::type,
         PointwiseGradients<BinaryKernels>::type>::type;
using PointwiseCalls = PointwiseGradients<BroadcastCalls>::type;

}  // namespace lockstep::cuda
