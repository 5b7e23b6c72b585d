// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/kernels/elementwise.hpp>
#include <lockstep/cuda/launch/kernel_list.hpp>
#include <lockstep/ops/kernels/elementwise_kernels.hpp>

#include <cstdint>

namespace lockstep::cuda {

// The functions of two elements that f32, f64, i64 and i32 have, and those of f32 and f64 alone.
template <class T, template <class, class, class...> class List>
struct NumericPairs
    : List<T, T, detail::Plus<T>, detail::PlusScaled<T>, detail::Minus<T>, detail::Times<T>> {};
template <class T, template <class, class, class...> class List>
struct FloatingPairs : List<T, T, detail::Over<T>> {};

template <template <class, class, class...> class List>
struct ArithmeticPairs
    : Join<typename NumericPairs<float, List>::type, typename NumericPairs<double, List>::type,
           typename NumericPairs<std::int64_t, List>::type,
           typename NumericPairs<std::int32_t, List>::type,
           typename FloatingPairs<float, List>::type, typename FloatingPairs<double, List>::type> {
};

template <class T>
struct NumericArithmetic : UnaryKernels<T, T, detail::BindRight<T, detail::Plus<T>>,
                                        detail::BindLeft<T, detail::Minus<T>>,
                                        detail::BindRight<T, detail::Times<T>>, detail::Negate<T>> {
};
template <class T>
struct FloatingArithmetic : UnaryKernels<T, T, detail::BindRight<T, detail::Over<T>>,
                                         detail::BindLeft<T, detail::Over<T>>> {};

using ArithmeticKernels =
    Join<NumericArithmetic<float>::type, NumericArithmetic<double>::type,
         NumericArithmetic<std::int64_t>::type, NumericArithmetic<std::int32_t>::type,
         FloatingArithmetic<float>::type, FloatingArithmetic<double>::type,
         ArithmeticPairs<BinaryKernels>::type>::type;
using ArithmeticCalls = ArithmeticPairs<BroadcastCalls>::type;

}  // namespace lockstep::cuda
