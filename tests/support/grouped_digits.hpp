// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <locale>
#include <string>

namespace lockstep::testing {

// While it lives, all new streams of the program write 4096 as 4,096, as those of a program do that
// asks for its user's locale.
class GroupedDigits {
 public:
  GroupedDigits()
      : before_(std::locale::global(std::locale(std::locale::classic(), new Punctuation))) {}
  GroupedDigits(const GroupedDigits&) = delete;
  GroupedDigits& operator=(const GroupedDigits&) = delete;
  ~GroupedDigits() { std::locale::global(before_); }

 private:
  struct Punctuation : std::numpunct<char> {
    char do_thousands_sep() const override { return ','; }
    std::string do_grouping() const override { return "\3"; }
  };

  const std::locale before_;
};

}  // namespace lockstep::testing
