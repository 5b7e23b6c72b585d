// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/tensor.hpp>

// The members of Tensor that concern its place in the graph.

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/autograd/variable.ipp>
#endif
