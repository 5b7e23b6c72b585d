// SPDX-License-Identifier: Apache-2.0
#pragma once

// The CUDA side's counterpart of lockstep/src.hpp: under LOCKSTEP_SEPARATE_COMPILATION exactly one
// file of a program, or of a library that it links, includes this header, compiled by nvcc, before
// any other header of lockstep.

#if !defined(LOCKSTEP_SEPARATE_COMPILATION)
#error "lockstep/cuda_src.hpp: define LOCKSTEP_SEPARATE_COMPILATION for this and all other files"
#endif
#if defined(LOCKSTEP_INLINE)
#error "lockstep/cuda_src.hpp: no other header of lockstep may be included before it"
#endif

#define LOCKSTEP_CUDA_SOURCE
#include <lockstep/cuda.hpp>
