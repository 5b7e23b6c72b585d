// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace lockstep::testing {

// How often any thread of this program has called operator new so far. One file of the program
// includes count_operator_new.hpp.
std::uint64_t operator_new_calls();

}  // namespace lockstep::testing
