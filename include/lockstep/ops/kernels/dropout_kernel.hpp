// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/tensor/device_random.hpp>

#include <cstddef>
#include <cstdint>

namespace lockstep::detail {

template <class T>
struct DropoutKernel {
  View<const T> in;
  View<T> out;
  RandomRange random;
  std::uint64_t threshold;  // p · 2⁵³
  T scale;

  LOCKSTEP_HD void operator()(std::size_t i) const {
    out[i] = in[i] * (static_cast<T>(random.bits53(i) >= threshold) * scale);  // no branch to guess
  }
};

}  // namespace lockstep::detail
