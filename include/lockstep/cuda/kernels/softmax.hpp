// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/cuda/kernel.hpp>
#include <lockstep/cuda/kernel_list.hpp>
#include <lockstep/cuda/strided_index.hpp>
#include <lockstep/cuda/team.hpp>
#include <lockstep/ops/softmax_kernels.hpp>

#include <cmath>
#include <cstddef>

namespace lockstep::cuda {

// Softmax, or its logarithm, of `count` elements `step` apart, at least one. The greatest is
// subtracted first, so that nothing overflows.
template <class T>
LOCKSTEP_HD lockstep::detail::LogSum<T> softmax_row(const T* in, T* out, std::size_t count,
                                                    std::size_t step, bool log, const Team& team) {
  T greatest = in[0];
  for (std::size_t c = team.index(); c < count; c += team.count()) {
    const T value = in[c * step];
    greatest = greatest < value ? value : greatest;
  }
  greatest = team.max(greatest);
  double sum = 0;
  for (std::size_t c = team.index(); c < count; c += team.count()) {
    const T e = std::exp(in[c * step] - greatest);
    if (!log) out[c * step] = e;
    sum += static_cast<double>(e);
  }
  sum = team.sum(sum);
  const lockstep::detail::LogSum<T> log_sum{greatest, static_cast<T>(std::log(sum))};
  const T factor = static_cast<T>(1 / sum);
  for (std::size_t c = team.index(); c < count; c += team.count()) {
    if (log) {
      out[c * step] = -log_sum.minus(in[c * step]);
    } else {
      out[c * step] *= factor;
    }
  }
  return log_sum;
}

// The rows of [outer, count, inner].
template <class T>
struct SoftmaxKernel {
  View<const T> in;
  View<T> out;
  Sharing sharing;
  std::size_t count;
  std::size_t inner;
  bool log;

  LOCKSTEP_HD void operator()(std::size_t launch, const Lanes& lanes) const {
    for_rows(sharing, launch, lanes, Normalize{*this});
  }

 private:
  struct Normalize {
    const SoftmaxKernel& kernel;
    LOCKSTEP_HD void operator()(std::size_t row, const Team& team) const {
      const Division at = divided(row, kernel.inner);
      const std::size_t first = at.quotient * kernel.count * kernel.inner + at.remainder;
      (void)softmax_row(kernel.in.data + first, kernel.out.data + first, kernel.count, kernel.inner,
                        kernel.log, team);
    }
  };
};

template <class T, bool Log>
struct CudaCall<lockstep::detail::SoftmaxCall<T, Log>> {
  using kernels = Kernels<SoftmaxKernel<T>>;
  static void run(lockstep::detail::StreamState& stream,
                  const lockstep::detail::SoftmaxCall<T, Log>& call) {
    if (call.in.size == 0) return;
    const std::size_t inner = call.axis.inner;
    const Sharing sharing{call.axis.outer * inner, inner >= kLanes};
    launch_kernel(stream, sharing.launches(),
                  SoftmaxKernel<T>{call.in, call.out, sharing, call.axis.count, inner, Log});
  }
};

using SoftmaxCalls =
    Kernels<lockstep::detail::SoftmaxCall<float, false>, lockstep::detail::SoftmaxCall<float, true>,
            lockstep::detail::SoftmaxCall<double, false>,
            lockstep::detail::SoftmaxCall<double, true>>;

}  // namespace lockstep::cuda
