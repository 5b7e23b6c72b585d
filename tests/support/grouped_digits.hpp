// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <locale>
#include <string>

namespace lockstep::testing {

// While it lives, all new streams of the program write and read 4096 as 4,096, as those of a
// program do that asks for its user's locale; or with another separator.
class GroupedDigits {
 public:
  explicit GroupedDigits(char separator = ',')
      : before_(
            std::locale::global(std::locale(std::locale::classic(), new Punctuation(separator)))) {}
  GroupedDigits(const GroupedDigits&) = delete;
  GroupedDigits& operator=(const GroupedDigits&) = delete;
  ~GroupedDigits() { std::locale::global(before_); }

 private:
  class Punctuation : public std::numpunct<char> {
   public:
    explicit Punctuation(char separator) : separator_(separator) {}

   private:
    char do_thousands_sep() const override { return separator_; }
    std::string do_grouping() const override { return "\3"; }

    const char separator_;
  };

  const std::locale before_;
};

}  // namespace lockstep::testing
