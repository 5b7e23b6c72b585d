// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/threads/park.hpp>
#include <lockstep/distributed/group/rank_failure.hpp>
#include <lockstep/distributed/work.hpp>

#include <gtest/gtest.h>

#include <exception>
#include <thread>
#include <vector>

#include "support/expect_error.hpp"

namespace lockstep::distributed {
namespace work_test {

using testing::throws;

TEST(Work, EachOfTheThreadsThatWaitIsReleasedAndToldOfTheError) {
  constexpr int kThreads = 4;
  for (const bool fails : {false, true}) {
    Work work;
    const detail::Completion completion(work);
    int result = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        for (int time = 0; time < 2; ++time) {
          const auto wait = [&work] { work.wait(); };
          if (fails) {
            EXPECT_TRUE(throws<RankGone>(wait, "rank 1 has gone"));
          } else {
            EXPECT_NO_THROW(wait());
          }
          EXPECT_EQ(result, 7);
          EXPECT_TRUE(work.is_completed());
          EXPECT_EQ(work.exception() != nullptr, fails);
        }
      });
    }
    while (lockstep::detail::parked_at(&completion.state().ended).load() < kThreads) {
      std::this_thread::yield();
    }
    EXPECT_FALSE(work.is_completed());
    result = 7;
    completion.finish(fails ? std::make_exception_ptr(RankGone("rank 1 has gone"))
                            : std::exception_ptr());
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(Work, OfNoOperationIsCompleted) {
  const Work none;
  EXPECT_TRUE(none.is_completed());
  EXPECT_NO_THROW(none.wait());
  EXPECT_EQ(none.exception(), nullptr);
}

}  // namespace work_test
}  // namespace lockstep::distributed
