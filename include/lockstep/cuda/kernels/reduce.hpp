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
  View<const T> in;
  View<std::int64_t> out;
  Sharing sharing;
  std::size_t count;
  std::size_t inner;

  LOCKSTEP_HD void operator()(std::size_t launch, const Lanes& lanes) const {
    for_rows(sharing, launch, lanes, Search{*this});
  }

 private:
  struct Search {
    const ArgmaxKernel& kernel;
    LOCKSTEP_HD void operator()(std::size_t row, const Team& team) const {
      kernel.search(row, team);
    }
  };

  // Finds the place of the greatest element; NaN counts as the greatest. Each thread has the first
  // of its own; among equal ones the lowest place wins.
  LOCKSTEP_HD void search(std::size_t row, const Team& team) const {
    const Division at = divided(row, inner);
    const T* const from = in.data + at.quotient * count * inner + at.remainder;
    std::size_t best = team.index() < count ? team.index() : 0;
    T greatest = from[best * inner];
    for (std::size_t c = best + team.count(); c < count; c += team.count()) {
      const T value = from[c * inner];
      const bool is_number = greatest == greatest;
      if (is_number && !(value <= greatest)) {
        best = c;
        greatest = value;
      }
    }
    const std::int64_t none = -static_cast<std::int64_t>(count);
    const std::int64_t place = -static_cast<std::int64_t>(best);
    std::int64_t found = team.max(greatest == greatest ? none : place);
    if (found == none) found = team.max(greatest == team.max(greatest) ? place : none);
    if (team.index() == 0) out[row] = -found;
  }
};

template <class T>
struct CudaCall<lockstep::detail::ArgmaxCall<T>> {
  using kernels = Kernels<ArgmaxKernel<T>>;
  static void run(lockstep::detail::StreamState& stream,
                  const lockstep::detail::ArgmaxCall<T>& call) {
    const Sharing sharing{call.outer * call.inner, call.inner >= kLanes};
    launch_kernel(stream, sharing.launches(),
                  ArgmaxKernel<T>{call.in, call.out, sharing, call.count, call.inner});
  }
};

using ReduceCalls = ForNumeric<lockstep::detail::ArgmaxCall>::type;

}  // namespace lockstep::cuda
