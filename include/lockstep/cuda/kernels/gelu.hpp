// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/kernels/elementwise.hpp>
#include <lockstep/cuda/launch/kernel_list.hpp>
#include <lockstep/ops/kernels/gelu_kernels.hpp>

namespace lockstep::cuda {

template <class T>
struct GeluUnary : UnaryKernels<T, T, detail::Gelu<T>, detail::GeluTanh<T>> {};

template <template <class, class, class...> class List>
struct GeluGradients : Join<typename List<float, float, detail::GeluGradient<float>,
                                          detail::GeluTanhGradient<float>>::type,
                            typename List<double, double, detail::GeluGradient<double>,
                                          detail::GeluTanhGradient<double>>::type> {};

using GeluKernels =
    Join<GeluUnary<float>::type, GeluUnary<double>::type, GeluGradients<BinaryKernels>::type>::type;
using GeluCalls = GeluGradients<BroadcastCalls>::type;

}  // namespace lockstep::cuda
