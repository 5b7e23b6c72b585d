// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace lockstep::detail {

// Parses all of `text` as a number in C's notation, without a plus sign or blanks; nothing if it is
// none, or out of Number's range.
template <class Number>
std::optional<Number> number_in(std::string_view text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

}  // namespace lockstep::detail
