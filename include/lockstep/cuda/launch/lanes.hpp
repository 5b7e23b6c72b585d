// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/host_device.hpp>

#include <cstddef>

namespace lockstep::cuda {

inline constexpr unsigned kLanes = 32;     // of a warp
inline constexpr unsigned kThreads = 256;  // of a block

// The threads that work on one row together: a warp of a GPU, or a block of several, or a single
// one, as wherever the functor runs on a host, whose own value is every sum.
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
    if (count == 1) return value;
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

// A functor that handles one row with several threads, as functor(row, lanes). They are a warp; a
// block if it has a member `columns()` that says that its rows are long, and a single thread if it
// has a member `by_thread` that is true, as where neighbouring elements in memory belong to
// different rows. Rows that wait in more warps at a time than fit into the caches would come from
// memory again at each pass.
template <class F>
concept RowFunctor = requires(const F& functor, std::size_t row, const Lanes& lanes) {
  functor(row, lanes);
};

// How many threads have a row.
template <RowFunctor F>
unsigned lanes_of_row(const F& functor) {
  constexpr std::size_t kLong = 4 * std::size_t{kThreads};
  if constexpr (requires { functor.by_thread; }) {
    if (functor.by_thread) return 1;
  }
  if constexpr (requires { functor.columns(); }) {
    if (functor.columns() >= kLong) return kThreads;
  }
  return kLanes;
}

}  // namespace lockstep::cuda
