// SPDX-License-Identifier: Apache-2.0

// Runs tests on the simulated CUDA runtime: whatever it has found wrong during a test fails that
// test. CUDASIM_POLICY and its siblings (cudasim.hpp) choose the schedule.
#include <cudasim/cudasim.hpp>

#include <lockstep/device/devices.hpp>

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace {

class FailOnErrors final : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo& test) override { cudasim::scope(test.name()); }
  void OnTestEnd(const testing::TestInfo&) override {
    cudasim::record_calls(false);
    cudasim::mend();
    cudasim::set_policy(asked_.policy, asked_.pick, asked_.seed);
    for (const std::string& error : cudasim::take_errors()) ADD_FAILURE() << error;
  }

  const cudasim::Config asked_ = cudasim::config_from_environment();
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  ::setenv("CUDASIM_DEVICES", "8", 0);
  // The simulator knows of freed memory what the runtime is told: a block that the library keeps is
  // not freed to it.
  ::setenv("LOCKSTEP_CUDA_MEMORY_CACHE", "0", 0);
  if (std::getenv("LOCKSTEP_HOST_DEVICES") == nullptr) lockstep::set_host_device_count(8);
  // In front of the printer, so that failures are printed with the test.
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  auto* printer = listeners.Release(listeners.default_result_printer());
  listeners.Append(new FailOnErrors);
  listeners.Append(printer);
  return RUN_ALL_TESTS();
}
