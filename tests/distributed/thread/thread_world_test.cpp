// SPDX-License-Identifier: Apache-2.0
#include <lockstep/distributed/thread/thread_world.hpp>
#include <lockstep/error.hpp>

#include <gtest/gtest.h>

#include <array>
#include <exception>
#include <memory>
#include <string>

namespace lockstep {
namespace thread_world_test {

using distributed::detail::ThreadWorld;

class Counted : public ValueError {
 public:
  Counted() : ValueError("too short") { ++alive; }
  Counted(const Counted& other) : ValueError(other) { ++alive; }
  Counted& operator=(const Counted&) = delete;
  ~Counted() override { --alive; }

  static inline int alive = 0;
};

// Others get what it says: it ends in the thread that has thrown it, whoever is the last to know.
TEST(ThreadWorld, AnExceptionStaysWithTheRankThatHasThrownIt) {
  ThreadWorld world(2);
  constexpr std::array kMembers = {0, 1};
  const auto part = std::make_shared<ThreadWorld>(world, kMembers);
  world.add_part(part, kMembers);
  std::exception_ptr error = std::make_exception_ptr(Counted());
  world.leave(0, error);
  error = nullptr;
  EXPECT_EQ(Counted::alive, 0);
  for (ThreadWorld* const each : {&world, part.get()}) {
    const std::string text = each->first_departure().text();
    EXPECT_NE(text.find("rank 0 has thrown "), std::string::npos) << text;
    EXPECT_NE(text.find("Counted: too short"), std::string::npos) << text;
  }
}

}  // namespace thread_world_test
}  // namespace lockstep
