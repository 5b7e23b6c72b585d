// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>

#include <gtest/gtest.h>

#include <string_view>

#include <sys/wait.h>
#include <unistd.h>

namespace lockstep::testing {

inline constexpr int kThrew = 127;

// Forks a child that ends with the status that `body` returns, or kThrew, and gives that status; -1
// if a signal ended the child, as the alarm does with one that hangs.
template <class Body>
int status_when_forked(const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    try {
      ::_exit(body());
    } catch (...) {
      ::_exit(kThrew);
    }
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Whether `use` throws an Error in a forked child that says why.
template <class Use>
::testing::AssertionResult refused_when_forked(const Use& use) {
  const int status = status_when_forked([&] {
    try {
      use();
    } catch (const Error& error) {
      return std::string_view(error.what()).find("forked") != std::string_view::npos ? 0 : 1;
    }
    return 2;
  });
  switch (status) {
    case 0:
      return ::testing::AssertionSuccess();
    case 1:
      return ::testing::AssertionFailure() << "the child got another Error";
    case kThrew:
      return ::testing::AssertionFailure() << "the child got an exception that is no Error";
    case 2:
      return ::testing::AssertionFailure() << "the child was not refused";
    default:
      return ::testing::AssertionFailure() << "a signal ended the child";
  }
}

}  // namespace lockstep::testing
