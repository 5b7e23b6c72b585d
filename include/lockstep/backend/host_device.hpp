// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

// Marks a function that a kernel calls, so that nvcc compiles it for the GPU as well.
#if defined(__CUDACC__)
#define LOCKSTEP_HD __host__ __device__
#else
#define LOCKSTEP_HD
#endif
