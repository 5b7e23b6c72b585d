// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>

#include <cmath>
#include <cstddef>

namespace lockstep::detail {

// What an element of a boolean mask adds to a score: minus infinity if it is `hidden`, else 0.
template <class T>
struct MaskBias {
  bool hidden;
  LOCKSTEP_HD T operator()(bool element) const {
    return element == hidden ? -static_cast<T>(INFINITY) : T(0);
  }
};

// The same for a square of queries and keys: a query sees no key after it.
template <class T>
struct CausalBias {
  View<T> out;
  std::size_t keys;
  LOCKSTEP_HD void operator()(std::size_t i) const {
    out[i] = i % keys > i / keys ? -static_cast<T>(INFINITY) : T(0);
  }
};

}  // namespace lockstep::detail
