// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/lost_results.hpp>
#include <lockstep/device/device.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <exception>
#include <vector>

namespace lockstep::testing {

// Forgets the lost results of all simulated GPUs, since the next test knows nothing of them. Those
// of a GPU that is not among `expected` fail this one.
inline void end_lost_results(const std::vector<Device>& expected = {}) {
  for (int gpu = 0; gpu < 8; ++gpu) {
    const Device device(DeviceType::cuda, gpu);
    try {
      cuda::LostResults::check(device);
    } catch (const std::exception& error) {
      if (std::find(expected.begin(), expected.end(), device) == expected.end()) {
        ADD_FAILURE() << device << " has lost results: " << error.what();
      }
    }
    cuda::LostResults::forget(device);
  }
}

}  // namespace lockstep::testing
