// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/fork_guard.hpp>

#include <gtest/gtest.h>

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

}  // namespace fork_guard_test
}  // namespace lockstep::detail
