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

}  // namespace warning_test
}  // namespace lockstep
