// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/kernels/elementwise.hpp>
#include <lockstep/cuda/launch/kernel_list.hpp>
#include <lockstep/ops/kernels/max_kernels.hpp>

#include <cstdint>

namespace lockstep::cuda {

template <class T, template <class, class, class...> class List>
struct Extrema : List<T, T, lockstep::detail::Maximum<T>, lockstep::detail::Minimum<T>> {};
template <class T, template <class, class, class...> class List>
struct MaximumShares : List<T, T, lockstep::detail::MaximumShare<T>> {};

template <template <class, class, class...> class List>
struct MaximumPairs
    : Join<typename Extrema<float, List>::type, typename Extrema<double, List>::type,
           typename Extrema<std::int64_t, List>::type, typename Extrema<std::int32_t, List>::type,
           typename MaximumShares<float, List>::type, typename MaximumShares<double, List>::type> {
};

using MaximumKernels = MaximumPairs<BinaryKernels>::type;
using MaximumCalls = MaximumPairs<BroadcastCalls>::type;

}  // namespace lockstep::cuda
