// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/cuda/kernels/sums.hpp>
#include <lockstep/cuda/launch/kernel.hpp>
#include <lockstep/cuda/launch/lanes.hpp>
#include <lockstep/cuda/launch/strided_index.hpp>
#include <lockstep/ops/kernels/reduce_kernels.hpp>

#include <cstddef>
#include <cstdint>

// Sums, and the place of the greatest element.
namespace lockstep::cuda {

template <class In, class Out>
struct CudaCall<detail::SumCall<In, Out>> {
  using Term = ValueTerm<In, Out>;
  using kernels = SumKernels<Term>;
  static void run(detail::StreamState& stream, const detail::SumCall<In, Out>& call) {
    launch_sum<Term>(stream, {call.in}, call.out, call.kept, call.reduced, call.divisor);
  }
};

template <class T>
struct ArgmaxKernel {
  detail::ArgmaxCall<T> call;
  bool by_thread;

  std::size_t columns() const { return call.axis.count; }

  // Finds the place of the greatest element; NaN counts as the greatest. Each thread has the first
  // of its own; among equal ones the lowest place wins.
  LOCKSTEP_HD void operator()(std::size_t row, const Lanes& lanes) const {
    const Division at = divided(row, call.axis.inner);
    const T* const from =
        call.in.data + at.quotient * call.axis.count * call.axis.inner + at.remainder;
    std::size_t best = lanes.index < call.axis.count ? lanes.index : 0;
    T greatest = from[best * call.axis.inner];
    for (std::size_t c = best + lanes.count; c < call.axis.count; c += lanes.count) {
      const T value = from[c * call.axis.inner];
      const bool is_number = greatest == greatest;
      if (is_number && !(value <= greatest)) {
        best = c;
        greatest = value;
      }
    }
    const std::int64_t none = -static_cast<std::int64_t>(call.axis.count);
    const std::int64_t place = -static_cast<std::int64_t>(best);
    std::int64_t found = lanes.max(greatest == greatest ? none : place);
    if (found == none) found = lanes.max(greatest == lanes.max(greatest) ? place : none);
    if (lanes.index == 0) call.out[row] = -found;
  }
};

template <class T>
struct CudaCall<detail::ArgmaxCall<T>> : AxisCall<ArgmaxKernel<T>> {};

using SumCalls = Kernels<detail::SumCall<float, float>, detail::SumCall<double, double>,
                         detail::SumCall<std::int64_t, std::int64_t>,
                         detail::SumCall<std::int32_t, std::int64_t>,
                         detail::SumCall<std::uint8_t, std::int64_t>>;
using ReduceCalls = Kernels<SumCalls, ForNumeric<detail::ArgmaxCall>>;

}  // namespace lockstep::cuda
