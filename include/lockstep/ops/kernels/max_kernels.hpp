// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/host_device.hpp>

namespace lockstep::detail {

template <class T>
struct Maximum {
  LOCKSTEP_HD T operator()(T x, T y) const { return x > y || x != x ? x : y; }
};
template <class T>
struct Minimum {
  LOCKSTEP_HD T operator()(T x, T y) const { return x < y || x != x ? x : y; }
};

// The part of a maximum's gradient that x gets; that of a minimum's, y.
template <class T>
struct MaximumShare {
  LOCKSTEP_HD T operator()(T x, T y) const { return x == y ? T(0.5) : x < y ? T(0) : T(1); }
};

}  // namespace lockstep::detail
