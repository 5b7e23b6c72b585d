// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/host_device.hpp>

namespace lockstep::cuda {

inline constexpr unsigned kLanes = 32;  // of a warp

// The threads that work on one row together: a warp of a GPU, or a block of several, or a single
// one where the functor runs on a host, whose own value is every sum.
//
// A row functor visits columns index, index + count, index + 2·count …; all lanes of a row call
// `sum` and `max` equally often, and all get the same result.
struct Lanes {
  unsigned index = 0;
  unsigned count = 1;

  template <class T>
  LOCKSTEP_HD T sum(T value) const {
    return combined(value, [](T a, T b) { return a + b; });
  }

  template <class T>
  LOCKSTEP_HD T max(T value) const {
    return combined(value, [](T a, T b) { return b > a ? b : a; });
  }

 private:
  static constexpr unsigned kMostWarps = 32;  // of a block

  template <class T, class F>
  LOCKSTEP_HD T combined(T value, [[maybe_unused]] const F& f) const {
#if defined(__CUDA_ARCH__)
    for (unsigned step = kLanes / 2; step > 0; step /= 2) {
      value = f(value, __shfl_xor_sync(~0U, value, step));
    }
    if (count <= kLanes) return value;
    __shared__ T of_warps[kMostWarps];
    __syncthreads();  // all have read what was there
    if (index % kLanes == 0) of_warps[index / kLanes] = value;
    __syncthreads();
    value = of_warps[0];
    for (unsigned warp = 1; warp < count / kLanes; ++warp) value = f(value, of_warps[warp]);
#endif
    return value;
  }
};

}  // namespace lockstep::cuda
