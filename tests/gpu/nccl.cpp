// SPDX-License-Identifier: Apache-2.0

// Sums and broadcasts of a program between several GPUs go through NCCL.
#include <lockstep/nccl.hpp>
