// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/kernels/elementwise.hpp>
#include <lockstep/cuda/launch/kernel_list.hpp>
#include <lockstep/ops/kernels/gelu_kernels.hpp>

namespace lockstep::cuda {

template <class T>
struct GeluUnary : UnaryKernels<T, T, lockstep::detail::Gelu<T>, lockstep::detail::GeluTanh<T>> {};

template <template <class, class, class...> class List>
struct GeluGradients : Join<typename List<float, float, lockstep::detail::GeluGradient<float>,
                                          lockstep::detail::GeluTanhGradient<float>>::type,
                            typename List<double, double, lockstep::detail::GeluGradient<double>,
                                          lockstep::detail::GeluTanhGradient<double>>::type> {};

using GeluKernels =
    Join<GeluUnary<float>::type, GeluUnary<double>::type, GeluGradients<BinaryKernels>::type>::type;
using GeluCalls = GeluGradients<BroadcastCalls>::type;

}  // namespace lockstep::cuda
