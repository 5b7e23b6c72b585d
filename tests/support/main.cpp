// SPDX-License-Identifier: Apache-2.0
#include <lockstep/device/devices.hpp>

#include "support/better_blas.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

// Test programs run on eight host devices, whatever the machine's cores, unless
// LOCKSTEP_HOST_DEVICES asks for another number.
int main(int argc, char** argv) {
  lockstep::testing::start_with_better_blas(argv);
  testing::InitGoogleTest(&argc, argv);
  if (std::getenv("LOCKSTEP_HOST_DEVICES") == nullptr) {
    lockstep::set_host_device_count(8);
  }
  return RUN_ALL_TESTS();
}
