// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/cuda/launch/kernel.hpp>
#include <lockstep/cuda/launch/kernel_list.hpp>
#include <lockstep/cuda/launch/strided_index.hpp>
#include <lockstep/cuda/launch/team.hpp>
#include <lockstep/ops/kernels/reduce_kernels.hpp>

#include <cstddef>
#include <cstdint>

namespace lockstep::cuda {

template <class T>
struct ArgmaxKernel {
  detail::ArgmaxCall<T> call;
  Sharing sharing;

  LOCKSTEP_HD void operator()(std::size_t launch, const Lanes& lanes) const {
    for_rows(sharing, launch, lanes, *this);
  }

  // Finds the place of the greatest element; NaN counts as the greatest. Each thread has the first
  // of its own; among equal ones the lowest place wins.
  LOCKSTEP_HD void operator()(std::size_t row, const Team& team) const {
    const Division at = divided(row, call.inner);
    const T* const from = call.in.data + at.quotient * call.count * call.inner + at.remainder;
    std::size_t best = team.index() < call.count ? team.index() : 0;
    T greatest = from[best * call.inner];
    for (std::size_t c = best + team.count(); c < call.count; c += team.count()) {
      const T value = from[c * call.inner];
      const bool is_number = greatest == greatest;
      if (is_number && !(value <= greatest)) {
        best = c;
        greatest = value;
      }
    }
    const std::int64_t none = -static_cast<std::int64_t>(call.count);
    const std::int64_t place = -static_cast<std::int64_t>(best);
    std::int64_t found = team.max(greatest == greatest ? none : place);
    if (found == none) found = team.max(greatest == team.max(greatest) ? place : none);
    if (team.index() == 0) call.out[row] = -found;
  }
};

template <class T>
struct CudaCall<detail::ArgmaxCall<T>> {
  using kernels = Kernels<ArgmaxKernel<T>>;
  static void run(detail::StreamState& stream, const detail::ArgmaxCall<T>& call) {
    const Sharing sharing{call.outer * call.inner, call.inner >= kLanes};
    launch_kernel(stream, sharing.launches(), ArgmaxKernel<T>{call, sharing});
  }
};

using ReduceCalls = ForNumeric<detail::ArgmaxCall>::type;

}  // namespace lockstep::cuda
