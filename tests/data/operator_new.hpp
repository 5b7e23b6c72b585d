// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace lockstep::testing {

// How often any thread of this program has called operator new so far. A program can count that in
// one place only: dataloader_memory_test.cpp.
std::uint64_t operator_new_calls();

}  // namespace lockstep::testing
