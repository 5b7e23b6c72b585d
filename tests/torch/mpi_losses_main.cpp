// SPDX-License-Identifier: Apache-2.0

// Trains a module of LibTorch's on the ranks that mpirun has started: each step has the loss of one
// process that has the whole batch.
#include <lockstep/distributed/init.hpp>
#include <lockstep/distributed/process_group.hpp>

#include "torch/distributed_losses.hpp"

#include <gtest/gtest.h>

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  GTEST_FLAG_SET(throw_on_failure, true);
  const lockstep::distributed::ProcessGroup world = lockstep::distributed::init_process_group();
  EXPECT_GT(world.size(), 1) << "expected to be started by mpirun";
  lockstep::testing::expect_near_losses(lockstep::testing::torch_losses_of(world),
                                        lockstep::testing::torch_losses_of_one());
}
