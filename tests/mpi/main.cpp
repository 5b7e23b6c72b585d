// SPDX-License-Identifier: Apache-2.0
#include <lockstep/device/devices.hpp>
#include <lockstep/distributed/init.hpp>
#include <lockstep/distributed/process_group.hpp>

#include "support/time_limit.hpp"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

// One rank. All ranks run the same tests in the same order, on the group that is made here; an
// exception that leaves a test ends the process, and so the world, since the others would wait for
// this rank. A world of one leaves out the tests of several ranks.
int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  GTEST_FLAG_SET(catch_exceptions, false);
  lockstep::testing::TimeLimit::install();
  lockstep::set_host_device_count(2);
  const lockstep::distributed::ProcessGroup world = lockstep::distributed::init_process_group();
  if (argc > 1 && std::string_view(argv[1]) == "--leave_others_waiting") {
    if (world.rank() == 0) return 3;
    world.barrier().wait();
    return 0;
  }
  if (world.size() == 1) {
    const std::string chosen = GTEST_FLAG_GET(filter);
    const bool excludes = chosen.find('-') != std::string::npos;
    GTEST_FLAG_SET(filter, chosen + (excludes ? ":" : "-") + "MpiOfSeveralRanks.*");
  }
  return RUN_ALL_TESTS();
}
