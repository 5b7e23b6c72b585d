// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/kernels/sums.hpp>
#include <lockstep/cuda/launch/kernel.hpp>
#include <lockstep/cuda/launch/kernel_list.hpp>
#include <lockstep/ops/kernels/reduce_kernels.hpp>

#include <cstdint>

namespace lockstep::cuda {

template <class In, class Out>
struct CudaCall<lockstep::detail::SumCall<In, Out>> {
  using Term = ValueTerm<In, Out>;
  using kernels = SumKernels<Term>;
  static void run(lockstep::detail::StreamState& stream,
                  const lockstep::detail::SumCall<In, Out>& call) {
    launch_sum<Term>(stream, {call.in}, call.out, call.kept, call.reduced, call.divisor);
  }
};

using SumCalls =
    Kernels<lockstep::detail::SumCall<float, float>, lockstep::detail::SumCall<double, double>,
            lockstep::detail::SumCall<std::int64_t, std::int64_t>,
            lockstep::detail::SumCall<std::int32_t, std::int64_t>,
            lockstep::detail::SumCall<std::uint8_t, std::int64_t>,
            lockstep::detail::SumCall<bool, std::int64_t>>;

}  // namespace lockstep::cuda
