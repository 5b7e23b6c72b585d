// SPDX-License-Identifier: Apache-2.0
#include <lockstep/warning.hpp>

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace lockstep {
namespace warning_test {

TEST(WarningHandler, OneThatIsReplacedMayWarnWhenItIsDestroyed) {
  std::vector<std::string> texts;
  set_warning_handler([last_words = std::shared_ptr<void>(
                           nullptr, [](void*) { warn("replaced"); })](const std::string&) {});
  set_warning_handler([&texts](const std::string& text) { texts.push_back(text); });
  EXPECT_EQ(texts, (std::vector<std::string>{"replaced"}));
  set_warning_handler({});
}

TEST(Warning, IsPrintedOnceButHandledEachTime) {
  ::testing::internal::CaptureStderr();
  for (const char* text : {"a loop warns", "another one", "a loop warns"}) warn(text);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "lockstep: warning: a loop warns\nlockstep: warning: another one\n");
  int calls = 0;
  set_warning_handler([&calls](const std::string&) { ++calls; });
  for (int i = 0; i < 2; ++i) warn("a loop warns");
  set_warning_handler({});
  EXPECT_EQ(calls, 2);
}

}  // namespace warning_test
}  // namespace lockstep
