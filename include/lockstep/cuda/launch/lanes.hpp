// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/host_device.hpp>

namespace lockstep::cuda {

inline constexpr unsigned kLanes = 32;  // of a warp

// The threads that work on one row together: a warp of a GPU, or a single one where the functor
// runs on a host, whose own value is every sum.
//
// A row functor visits columns index, index + count, index + 2·count …; all lanes of a row call
// `sum` and `max` equally often, and all get the same result.
struct Lanes {
  unsigned index = 0;
  unsigned count = 1;

  template <class T>
  LOCKSTEP_HD T sum(T value) const {
#if defined(__CUDA_ARCH__)
    for (unsigned step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0U, value, step);
#endif
    return value;
  }

  template <class T>
  LOCKSTEP_HD T max(T value) const {
#if defined(__CUDA_ARCH__)
    for (unsigned step = 16; step > 0; step /= 2) {
      const T other = __shfl_xor_sync(~0U, value, step);
      value = other > value ? other : value;
    }
#endif
    return value;
  }
};

}  // namespace lockstep::cuda
