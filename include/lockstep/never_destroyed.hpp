// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

namespace lockstep::detail {

// The process's single T. It is made at first use and never destroyed, so that other threads and
// destructors of static objects may use it to the end.
template <class T>
T& never_destroyed() {
  static T& object = *new T;
  return object;
}

}  // namespace lockstep::detail
