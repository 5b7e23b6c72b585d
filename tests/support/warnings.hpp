// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/warning.hpp>

#include <string>
#include <vector>

namespace lockstep::testing {

// Keeps the warnings that are given while it lives. One at a time.
class CaughtWarnings {
 public:
  CaughtWarnings() {
    set_warning_handler([this](const std::string& text) { texts.push_back(text); });
  }
  CaughtWarnings(const CaughtWarnings&) = delete;
  CaughtWarnings& operator=(const CaughtWarnings&) = delete;
  ~CaughtWarnings() { set_warning_handler({}); }

  // How many of them contain `part`.
  int count(const std::string& part = "") const {
    int found = 0;
    for (const std::string& text : texts) found += text.find(part) != std::string::npos;
    return found;
  }

  std::vector<std::string> texts;  // the sink calls one thread at a time
};

}  // namespace lockstep::testing
