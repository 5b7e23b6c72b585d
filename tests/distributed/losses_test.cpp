// SPDX-License-Identifier: Apache-2.0
#include "distributed/losses.hpp"

#include <lockstep/distributed/run.hpp>

#include "support/devices.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <tuple>
#include <vector>

namespace lockstep {
namespace losses_test {

using distributed::ProcessGroup;
using testing::LossCase;
using testing::Losses;

// The losses that each rank of so many threads has seen.
std::vector<Losses> train(const LossCase& wanted, std::size_t world) {
  std::vector<Losses> ranks(world);
  distributed::run(testing::first_devices(world), [&](const ProcessGroup& group) {
    ranks[static_cast<std::size_t>(group.rank())] = testing::losses_of(wanted, group);
  });
  return ranks;
}

class LossesOfThreads : public ::testing::TestWithParam<std::tuple<std::size_t, const char*>> {
 protected:
  void SetUp() override {
    if (!testing::has_images()) GTEST_SKIP() << testing::kNeedsImages;
  }
  std::size_t world() const { return std::get<0>(GetParam()); }
  std::vector<LossCase> cases() const { return testing::loss_cases(std::get<1>(GetParam())); }
};

TEST_P(LossesOfThreads, AreThoseOfOneProcessAndTheSameBitsInEveryRun) {
  for (const LossCase& wanted : cases()) {
    const Losses alone = testing::losses_of_one(wanted);
    const std::vector<Losses> ranks = train(wanted, world());
    testing::expect_same_losses(ranks[0], alone, wanted);
    for (const Losses& rank : ranks) EXPECT_EQ(rank, ranks[0]) << wanted.name();
    EXPECT_EQ(train(wanted, world()), ranks) << wanted.name() << " in a second run";
  }
}

std::string case_name(const ::testing::TestParamInfo<LossesOfThreads::ParamType>& info) {
  return std::string(std::get<1>(info.param)) + "_in_world_of_" +
         std::to_string(std::get<0>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Worlds, LossesOfThreads,
                         ::testing::Combine(::testing::Values(1U, 2U, 3U, 4U),
                                            ::testing::Values("mlp", "cnn")),
                         case_name);

}  // namespace losses_test
}  // namespace lockstep
