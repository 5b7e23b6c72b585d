// SPDX-License-Identifier: Apache-2.0
#pragma once

// The CUDA side of lockstep. One file of a program, compiled by nvcc, includes this header; all
// others include lockstep/lockstep.hpp, with any compiler. Without a driver or a GPU the program
// runs on host devices, and `no_cuda_reason` says why.
//
// Under LOCKSTEP_SEPARATE_COMPILATION (lockstep/config.hpp) nvcc compiles the file with
// lockstep/cuda_src.hpp instead. This header then only makes the CUDA side linked, and any compiler
// takes it; nvcc also gets `fill_slots` from it, for functors of the program's own.

#include <lockstep/config.hpp>
#include <lockstep/cuda/libraries/precision.hpp>
#include <lockstep/cuda/memory/memory_limit.hpp>

#if defined(__CUDACC__)
#include <lockstep/cuda/launch/kernel.hpp>
#elif defined(LOCKSTEP_CUDA_DEFINITIONS) && !defined(LOCKSTEP_CUDA_WITHOUT_NVCC)
#error "lockstep/cuda.hpp: compile this file by nvcc, or link lockstep::cuda_compiled (config.hpp)"
#endif

namespace lockstep::cuda {

// Registers the CUDA backend and the library's kernels; returns true.
bool register_backend();

inline const bool registered = register_backend();

}  // namespace lockstep::cuda

#if defined(LOCKSTEP_CUDA_DEFINITIONS)
#include <lockstep/impl/cuda.ipp>
#endif
