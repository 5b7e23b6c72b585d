// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/failing_calls.hpp"
#include "support/out_of_memory_walk.hpp"

#include <gtest/gtest.h>

#include <exception>
#include <string>

namespace lockstep::testing {

// Every call of this kind that an operation makes fails in turn (walk_places). It has to make one.
template <class Visit>
bool walk_calls(const std::string& operation, const Visit& visit) {
  int failed = 0;
  const bool all =
      walk_places(operation, "call", 1, &FailingCalls::has_struck, [&](const Place& place) {
        visit(place);
        if (!place.lasting && FailingCalls::has_struck()) ++failed;
      });
  EXPECT_GT(failed, 0) << operation << ": no call has failed";
  return all;
}

// True if `body` ends with an exception while calls fail, which has to be a T that tells of `part`.
template <class T, class Body>
bool fails_with(CallKind kind, Place place, const std::string& part, const Body& body) {
  std::exception_ptr error;
  {
    const FailingCalls failing(kind, place.number, place.lasting);
    try {
      body();
    } catch (...) {
      error = std::current_exception();
    }
  }
  if (!error) return false;
  EXPECT_TRUE(FailingCalls::has_struck()) << text_of(error);
  EXPECT_NE(text_of(error).find(part), std::string::npos) << text_of(error);
  EXPECT_THROW(std::rethrow_exception(error), T) << text_of(error);
  return true;
}

}  // namespace lockstep::testing

// At the begin of a test.
#define LOCKSTEP_NEEDS_FAILING_CALLS()                                                      \
  if (!lockstep::testing::kCallsCanFail) {                                                  \
    GTEST_SKIP() << "needs a build without a sanitizer, whose functions would be replaced"; \
  }
