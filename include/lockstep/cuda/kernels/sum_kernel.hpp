// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/kernels/sums.hpp>
#include <lockstep/cuda/launch/kernel.hpp>
#include <lockstep/cuda/launch/kernel_list.hpp>
#include <lockstep/ops/kernels/reduce_kernels.hpp>

#include <cstdint>

namespace lockstep::cuda {

template <class In, class Out>
struct CudaCall<detail::SumCall<In, Out>> {
  using Term = ValueTerm<In, Out>;
  using kernels = SumKernels<Term>;
  static void run(detail::StreamState& stream, const detail::SumCall<In, Out>& call) {
    launch_sum<Term>(stream, {call.in}, call.out, call.kept, call.reduced, call.divisor);
  }
};

using SumCalls = Kernels<detail::SumCall<float, float>, detail::SumCall<double, double>,
                         detail::SumCall<std::int64_t, std::int64_t>,
                         detail::SumCall<std::int32_t, std::int64_t>,
                         detail::SumCall<std::uint8_t, std::int64_t>>;

}  // namespace lockstep::cuda
