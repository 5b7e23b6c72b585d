// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/host/blas.hpp>
#include <lockstep/device/devices.hpp>

#include <gtest/gtest.h>

#include <cstdlib>

#include <unistd.h>

// Test programs run on eight host devices, whatever the machine's cores, unless
// LOCKSTEP_HOST_DEVICES asks for another number. OpenBLAS chooses its kernels when a program
// starts: where it has better ones, the program starts again, and all that it starts has them, too.
int main(int argc, char** argv) {
  using namespace lockstep::detail;
  if (const char* core = better_blas_core(BlasControls::linked())) {
    setenv("OPENBLAS_CORETYPE", core, 1);
    execv("/proc/self/exe", argv);
  }
  testing::InitGoogleTest(&argc, argv);
  if (std::getenv("LOCKSTEP_HOST_DEVICES") == nullptr) {
    lockstep::set_host_device_count(8);
  }
  return RUN_ALL_TESTS();
}
