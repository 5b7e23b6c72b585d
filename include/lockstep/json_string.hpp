// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <cstddef>
#include <string>
#include <string_view>

// JSON strings (RFC 8259), for the files that lockstep writes and for messages.
namespace lockstep::detail {

// The length in bytes of the well-formed UTF-8 sequence (Unicode 15, table 3-7) with which `text`,
// which is not empty, begins; 0 if there is none.
inline std::size_t utf8_length(std::string_view text) {
  const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return 1;
  const std::size_t length = byte(0) >= 0xF0 ? 4 : byte(0) >= 0xE0 ? 3 : 2;
  if (byte(0) < 0xC2 || byte(0) > 0xF4 || text.size() < length) return 0;
  unsigned code = byte(0) & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80) return 0;
    code = code << 6U | (byte(i) & 0x3FU);
  }
  const bool shortest = code >= (length == 4 ? 0x10000U : length == 3 ? 0x800U : 0x80U);
  const bool surrogate = code >= 0xD800 && code < 0xE000;
  return shortest && !surrogate && code < 0x110000 ? length : 0;
}

// `text` as a JSON string, in quotes; a byte that is not UTF-8 becomes the replacement character.
inline std::string json_string(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  constexpr std::string_view kEscaped = "\"\\\b\f\n\r\t";
  constexpr std::string_view kLetters = "\"\\bfnrt";
  std::string result = "\"";
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const auto first = static_cast<unsigned char>(text[0]);
    if (length == 0) {
      result += "\\ufffd";
    } else if (const std::size_t at = kEscaped.find(text[0]); at != std::string_view::npos) {
      result += {'\\', kLetters[at]};
    } else if (first < 0x20) {
      result += {'\\', 'u', '0', '0', kHex[first >> 4U], kHex[first & 15U]};
    } else {
      result += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return result + '"';
}

}  // namespace lockstep::detail
