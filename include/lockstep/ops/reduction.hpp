// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

namespace lockstep {

// How several losses become the result: their mean, their sum, or each one.
//
// **Torch counterpart.** The argument `reduction` of torch's losses.
enum class Reduction { mean, sum, none };

}  // namespace lockstep
