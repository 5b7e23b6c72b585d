// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/host/background_threads.hpp>
#include <lockstep/backend/launch_in_pieces.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/backend/threads/worker_team.hpp>
#include <lockstep/device/cores.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {
namespace launch_between_teams_test {

struct Count {
  View<int> calls;
  void operator()(std::size_t i) const { ++calls[i]; }
};

// Whether a launch over so many ints offers a part of itself to other threads.
bool shares(std::size_t count) {
  std::vector<int> calls(count);
  detail::BackgroundThreads& threads = detail::BackgroundThreads::instance();
  const std::uint32_t before = threads.announcements();
  launch_between_teams<sizeof(int)>(current_stream(Device("cpu:0")), count,
                                    Count{{calls.data(), calls.size()}});
  EXPECT_EQ(calls, std::vector<int>(count, 1));
  return threads.announcements() != before;
}

constexpr std::size_t kLarge = 2 * detail::kWorthDividing / sizeof(int) + 3;

TEST(LaunchBetweenTeams, SharesWhatIsWorthIt) {
  if (detail::usable_cores() == 1) GTEST_SKIP() << "needs two cores";
  EXPECT_TRUE(shares(kLarge));
  EXPECT_FALSE(shares(1000));
  EXPECT_FALSE(shares(0));
}

TEST(LaunchBetweenTeams, SharesNothingWithinATeam) {
  bool shared[2] = {};
  detail::run_team(2, [&](std::size_t i) {
    // One at a time: each would see the other's news.
    if (i == 0) shared[0] = shares(kLarge);
  });
  detail::run_team(2, [&](std::size_t i) {
    if (i == 1) shared[1] = shares(kLarge);
  });
  EXPECT_FALSE(shared[0]);
  EXPECT_FALSE(shared[1]);
}

}  // namespace launch_between_teams_test
}  // namespace lockstep
