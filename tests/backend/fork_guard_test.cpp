// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/backend/host/background_threads.hpp>
#include <lockstep/backend/host/host_backend.hpp>

#include "support/forked.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <thread>

namespace lockstep::detail {
namespace fork_guard_test {

using testing::refused_when_forked;
using testing::status_when_forked;

TEST(ForkGuard, ThrowsInTheChildAndNotInTheParent) {
  EXPECT_FALSE(forked());
  EXPECT_NO_THROW(check_not_forked());
  EXPECT_TRUE(refused_when_forked([] { check_not_forked(); }));
  EXPECT_TRUE(refused_when_forked([] {
    BackgroundThreads::instance().share({[](std::size_t) {}, 2});
  }));
  EXPECT_EQ(status_when_forked([] { return forked() ? 0 : 1; }), 0);
  EXPECT_FALSE(forked());
  EXPECT_NO_THROW(check_not_forked());
}

TEST(ForkGuard, MarksGrandchildrenToo) {
  EXPECT_FALSE(forked());  // from the first call on children are marked
  const auto grandchild = [] { return forked() ? 0 : 1; };
  EXPECT_EQ(status_when_forked([&] { return status_when_forked(grandchild); }), 0);
}

// In some of the children the allocator's lock is held by a thread that they do not have.
TEST(ForkGuard, AllocatingInTheChildThrowsWhateverTheOtherThreadsAreAtAndFreeingDoesNothing) {
  HostBackend& backend = HostBackend::instance();
  HostStream& stream = backend.default_stream("cpu:0");
  void* const mine = backend.allocate(64, stream);
  std::atomic<bool> stop{false};
  std::thread allocating([&] {
    while (!stop.load()) backend.deallocate(backend.allocate(64, stream), 64, stream, {});
  });
  for (int i = 0; i < 50; ++i) {
    EXPECT_TRUE(refused_when_forked([&] {
      backend.deallocate(mine, 64, stream, {});
      (void)backend.allocate(64, stream);
    }));
  }
  stop = true;
  allocating.join();
  backend.deallocate(mine, 64, stream, {});
}

}  // namespace fork_guard_test
}  // namespace lockstep::detail
