// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/kernels/sums.hpp>
#include <lockstep/cuda/launch/kernel.hpp>
#include <lockstep/cuda/launch/kernel_list.hpp>
#include <lockstep/ops/kernels/channel_sum_kernel.hpp>
#include <lockstep/ops/layout.hpp>
#include <lockstep/tensor/shape.hpp>

#include <cstddef>
#include <cstdint>

namespace lockstep::cuda {

// The channels of a tensor of [outer, channels, inner], and the elements of one of them.
struct ChannelWalks {
  detail::Walk<1> kept;
  detail::Walk<1> reduced;

  ChannelWalks(std::size_t outer, std::size_t channels, std::size_t inner) {
    const auto o = static_cast<std::int64_t>(outer);
    const auto c = static_cast<std::int64_t>(channels);
    const auto i = static_cast<std::int64_t>(inner);
    kept = detail::make_walk<1>(Shape{c}, {Shape{i}});
    reduced = detail::make_walk<1>(Shape{o, i}, {Shape{c * i, 1}});
  }
};

template <class T>
struct CudaCall<detail::ChannelSumCall<T>> {
  using Term = ValueTerm<T>;
  using kernels = SumKernels<Term>;
  static void run(detail::StreamState& stream, const detail::ChannelSumCall<T>& call) {
    const ChannelWalks walks(call.axis.outer, call.axis.count, call.axis.inner);
    launch_sum<Term>(stream, {call.in}, call.out, walks.kept, walks.reduced, 1);
  }
};

using ChannelSumCalls = ForFloating<detail::ChannelSumCall>::type;

}  // namespace lockstep::cuda
