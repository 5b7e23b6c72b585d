// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <ostream>

namespace lockstep::distributed {

// How a collective combines the ranks' elements.
//
// avg divides the sum by the number of ranks; for a tensor that is not floating-point it is a
// DtypeError. Booleans are combined by "or" (sum, max) or by "and" (product, min). A NaN on any
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
