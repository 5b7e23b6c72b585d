// SPDX-License-Identifier: Apache-2.0

// All that a program needs to run on GPUs as well: this file among its sources, compiled by nvcc.
#include <lockstep/cuda.hpp>
