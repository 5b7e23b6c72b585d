// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/host_device.hpp>

#include <cstddef>

// Put before a loop in a kernel: how often a GPU's compiler repeats its body, 1 for never. What is
// long and seldom run is not worth the time that it takes to compile it several times.
#if defined(__CUDA_ARCH__)
#define LOCKSTEP_PRAGMA(text) _Pragma(#text)
#define LOCKSTEP_UNROLL(times) LOCKSTEP_PRAGMA(unroll times)
#else
#define LOCKSTEP_UNROLL(times)
#endif

namespace lockstep::cuda {

// Calls use(c, read(c)) for c = first, first + step … below `count`, in this order. Reads eight
// before the first of them is used, so that a thread has as many reads under way at a time, which
// a GPU's compiler cannot arrange where `use` writes.
template <class Read, class Use>
LOCKSTEP_HD void in_eights(std::size_t first, std::size_t step, std::size_t count, const Read& read,
                           const Use& use) {
  constexpr std::size_t kAtATime = 8;
  std::size_t c = first;
  LOCKSTEP_UNROLL(1)
  for (; c + (kAtATime - 1) * step < count; c += kAtATime * step) {
    decltype(read(c)) values[kAtATime];
    for (std::size_t k = 0; k < kAtATime; ++k) values[k] = read(c + k * step);
    for (std::size_t k = 0; k < kAtATime; ++k) use(c + k * step, values[k]);
  }
  LOCKSTEP_UNROLL(1)
  for (; c < count; c += step) use(c, read(c));
}

}  // namespace lockstep::cuda
