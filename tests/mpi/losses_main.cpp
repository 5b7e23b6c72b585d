// SPDX-License-Identifier: Apache-2.0

// Trains the cases of tests/distributed/losses.hpp on the ranks that mpirun has started, and prints
// the bits of every loss. Unless the argument is --bits-only, each case must give the losses of one
// process that has the whole batch, and the bits of as many threads.
#include "distributed/losses.hpp"

#include <lockstep/device/devices.hpp>
#include <lockstep/distributed/init.hpp>
#include <lockstep/distributed/run.hpp>

#include "support/better_blas.hpp"
#include "support/devices.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <ios>
#include <iostream>
#include <string_view>

namespace ls = lockstep;
using ls::distributed::ProcessGroup;
using ls::testing::LossCase;
using ls::testing::Losses;

namespace mpi_losses {

Losses losses_of_threads(const LossCase& wanted, int world) {
  Losses losses;
  ls::distributed::run(ls::testing::first_devices(static_cast<std::size_t>(world)),
                       [&](const ProcessGroup& group) {
                         const Losses mine = ls::testing::losses_of(wanted, group);
                         if (group.rank() == 0) losses = mine;
                       });
  return losses;
}

// For rank 0: the others have seen the same means.
void check(const Losses& losses, const LossCase& wanted, int world) {
  ls::testing::expect_same_losses(losses, ls::testing::losses_of_one(wanted), wanted);
  EXPECT_EQ(losses, losses_of_threads(wanted, world)) << wanted.name();
}

void print_bits(const Losses& losses, const LossCase& wanted) {
  std::cout << wanted.name() << std::hexfloat;
  for (const double loss : losses) std::cout << ' ' << loss;
  std::cout << std::endl;
}

}  // namespace mpi_losses

int main(int argc, char** argv) {
  ls::testing::start_with_better_blas(argv);
  if (!ls::testing::has_images()) {
    std::cout << "skipped: " << ls::testing::kNeedsImages << std::endl;
    return 0;
  }
  testing::InitGoogleTest(&argc, argv);
  GTEST_FLAG_SET(throw_on_failure, true);
  const bool bits_only = argc > 1 && std::string_view(argv[1]) == "--bits-only";
  ls::set_host_device_count(4);
  const ProcessGroup world = ls::distributed::init_process_group();
  for (const char* network : {"mlp", "cnn"}) {
    for (const LossCase& wanted : ls::testing::loss_cases(network)) {
      const Losses losses = ls::testing::losses_of(wanted, world);
      if (world.rank() != 0) continue;
      if (!bits_only) mpi_losses::check(losses, wanted, world.size());
      mpi_losses::print_bits(losses, wanted);
    }
  }
}
