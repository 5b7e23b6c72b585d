// SPDX-License-Identifier: Apache-2.0
#pragma once

// lockstep over LibTorch: data parallelism for programs that have LibTorch's tensors and modules,
// and keep them. The program links lockstep::torch. Nothing of it is in lockstep.hpp.

#include <lockstep/parallel/criterion.hpp>
#include <lockstep/parallel/parallel_apply.hpp>
#include <lockstep/parallel/replicate.hpp>
#include <lockstep/parallel/scatter_gather.hpp>
#include <lockstep/torch/tensor_traits.hpp>
#include <lockstep/torch/thread_state.hpp>
