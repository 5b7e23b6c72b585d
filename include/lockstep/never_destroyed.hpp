// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

namespace lockstep::detail {

// The one T of the process: made at its first use, and never destroyed, so that other threads and
// the destructors of static objects may use it to the end.
template <class T>
T& never_destroyed() {
  static T& object = *new T;
  return object;
}

}  // namespace lockstep::detail
