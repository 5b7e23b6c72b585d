// SPDX-License-Identifier: Apache-2.0

#include <lockstep/cuda_src.hpp>
