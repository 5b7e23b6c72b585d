// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/non_copyable.hpp>

#include <utility>

namespace lockstep::detail {

namespace bases {

// Sets a variable until destroyed, and then restores it: the base of guards and scopes that change
// the calling thread's state, and that the same thread destroys.
template <class T>
class ScopedValue : NonCopyable {
 public:
  ScopedValue(T& variable, T value)
      : variable_(variable), before_(std::exchange(variable, std::move(value))) {}
  ~ScopedValue() { variable_ = std::move(before_); }

 private:
  T& variable_;
  T before_;
};

}  // namespace bases

using bases::ScopedValue;

}  // namespace lockstep::detail
