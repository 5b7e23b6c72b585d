// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <string>
#include <typeinfo>

namespace lockstep::testing {

// Passes if `body` throws an E whose message contains all `parts`.
template <class E, class Body, class... Parts>
::testing::AssertionResult throws(Body&& body, const Parts&... parts) {
  try {
    body();
  } catch (const E& error) {
    const std::string text = error.what();
    for (const std::string& part : {std::string(parts)...}) {
      if (text.find(part) == std::string::npos) {
        return ::testing::AssertionFailure()
               << "the message \"" << text << "\" does not contain \"" << part << '"';
      }
    }
    return ::testing::AssertionSuccess();
  } catch (const std::exception& error) {
    return ::testing::AssertionFailure()
           << "threw " << typeid(error).name() << " instead: " << error.what();
  }
  return ::testing::AssertionFailure() << "threw nothing";
}

// The message of the E that `action` throws.
template <class E, class Action>
std::string message_of(Action&& action) {
  try {
    action();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace lockstep::testing
