// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/backend/host/host_backend.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

namespace lockstep::detail {
namespace fork_guard_test {

int status_of(pid_t child) {
  int status = 0;
  if (::waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(ForkGuard, ThrowsInTheChildAndNotInTheParent) {
  EXPECT_FALSE(forked());
  EXPECT_NO_THROW(check_not_forked());
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      check_not_forked();
    } catch (const Error&) {
      ::_exit(forked() ? 0 : 1);
    }
    ::_exit(2);
  }
  EXPECT_EQ(status_of(child), 0);
  EXPECT_FALSE(forked());
  EXPECT_NO_THROW(check_not_forked());
}

TEST(ForkGuard, MarksGrandchildrenToo) {
  EXPECT_FALSE(forked());
  const pid_t child = ::fork();
  if (child == 0) {
    const pid_t grandchild = ::fork();
    if (grandchild == 0) ::_exit(forked() ? 0 : 1);
    ::_exit(status_of(grandchild) == 0 ? 0 : 2);
  }
  EXPECT_EQ(status_of(child), 0);
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
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(60);  // ends a child that hangs
      backend.deallocate(mine, 64, stream, {});
      try {
        (void)backend.allocate(64, stream);
      } catch (const Error& error) {
        ::_exit(std::string(error.what()).find("forked") != std::string::npos ? 0 : 1);
      }
      ::_exit(2);
    }
    EXPECT_EQ(status_of(child), 0);
  }
  stop = true;
  allocating.join();
  backend.deallocate(mine, 64, stream, {});
}

}  // namespace fork_guard_test
}  // namespace lockstep::detail
