// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <ostream>

namespace lockstep::distributed {

// How collectives combine what the ranks bring.
//
// avg divides the sum by the number of ranks; it is for floating-point tensors, and a DtypeError
// for others. Booleans are combined by "or" (sum, max) or by "and" (product, min). A NaN on any
// rank makes the minimum and the maximum NaN.
//
// **Torch counterpart.** torch.distributed.ReduceOp.
enum class ReduceOp : unsigned char { sum, avg, product, min, max };

constexpr const char* name(ReduceOp op) {
  constexpr const char* kNames[] = {"sum", "avg", "product", "min", "max"};
  return kNames[static_cast<unsigned char>(op)];
}

inline std::ostream& operator<<(std::ostream& out, ReduceOp op) { return out << name(op); }

}  // namespace lockstep::distributed
