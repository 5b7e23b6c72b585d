// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <cstdint>
#include <string>

namespace lockstep::profile {

// A range as drawn. Times are nanoseconds since the Profiler began.
//
// **Torch counterpart.** torch.autograd.profiler_util.FunctionEvent, what profile.events() has.
struct FunctionEvent {
  std::string name;
  std::string row;  // "main", "cpu:0 compute", "cpu:0 copy", the name of a thread
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  std::uint64_t bytes = 0;
};

}  // namespace lockstep::profile
