// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

namespace lockstep {

// What becomes of several losses: each is kept, or their mean or their sum is the result.
//
// **Torch counterpart.** The argument `reduction` of torch's losses.
enum class Reduction { mean, sum, none };

}  // namespace lockstep
