// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>

#include <cstddef>

namespace cuda_joint {

// A functor of a program that uses lockstep.
struct OwnKernel {
  lockstep::View<float> out;
  LOCKSTEP_HD void operator()(std::size_t i) const { out[i] = 1; }
};

}  // namespace cuda_joint
