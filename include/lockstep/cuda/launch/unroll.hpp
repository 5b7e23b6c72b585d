// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

// Put before a loop in a kernel: how often a GPU's compiler repeats its body, 1 for never. What is
// long and seldom run is not worth the time that it takes to compile it several times.
#if defined(__CUDA_ARCH__)
#define LOCKSTEP_PRAGMA(text) _Pragma(#text)
#define LOCKSTEP_UNROLL(times) LOCKSTEP_PRAGMA(unroll times)
#else
#define LOCKSTEP_UNROLL(times)
#endif
