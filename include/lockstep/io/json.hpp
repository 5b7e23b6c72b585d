// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/error.hpp>
#include <lockstep/json_string.hpp>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

// The part of JSON (RFC 8259) that the header of a safetensors file uses.
namespace lockstep::io::detail {

using lockstep::detail::json_string;
using lockstep::detail::utf8_length;

inline bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

// `code` in UTF-8. It is not a surrogate.
inline std::string to_utf8(std::uint32_t code) {
  const auto tail = [code](unsigned shift) {
    return static_cast<char>(0x80U | ((code >> shift) & 0x3FU));
  };
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800) return {static_cast<char>(0xC0U | (code >> 6)), tail(0)};
  if (code < 0x10000) return {static_cast<char>(0xE0U | (code >> 12)), tail(6), tail(0)};
  return {static_cast<char>(0xF0U | (code >> 18)), tail(12), tail(6), tail(0)};
}

// Reads a text in the order in which its caller expects its contents. It builds no tree and skips
// nothing, so the text cannot be nested more deeply than the caller reads.
//
// **Threads and exceptions.** A DataError for anything that the caller does not expect or the
// grammar does not allow: `where`, which outlives the reader, what was expected, and the byte of
// the text.
class JsonReader {
 public:
  JsonReader(std::string_view text, std::string_view where) : text_(text), where_(where) {}

  // Calls `member(std::string key)`, which must read the value, for each member. A duplicate key is
  // refused.
  template <class Member>
  void object(Member&& member) {
    std::set<std::string, std::less<>> keys;
    expect('{', "an object");
    if (take('}')) return;
    do {
      skip_space();
      std::string key = string();
      if (!keys.insert(key).second) fail("the name ", json_string(key), " comes twice");
      expect(':', "':'");
      member(std::move(key));
    } while (take(','));
    expect('}', "',' or '}'");
  }

  // Calls `element()`, which must read the element, for each element.
  template <class Element>
  void array(Element&& element) {
    expect('[', "an array");
    if (take(']')) return;
    do {
      element();
    } while (take(','));
    expect(']', "',' or ']'");
  }

  std::string string() {
    expect('"', "a string");
    std::string result;
    while (true) {
      const char c = peek();
      if (c == '"') {
        ++at_;
        return result;
      }
      if (c == '\\') {
        result += escape();
        continue;
      }
      if (at_ == text_.size()) fail("the string does not end");
      const std::size_t length = utf8_length(text_.substr(at_));
      if (length == 0) fail("the string is not UTF-8");
      if (static_cast<unsigned char>(c) < 0x20) fail("a control character in a string");
      result += text_.substr(at_, length);
      at_ += length;
    }
  }

  // Reads a whole number of at least 0, without point or exponent.
  std::uint64_t whole_number() {
    skip_space();
    std::uint64_t value = 0;
    const char* const begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (error == std::errc::result_out_of_range) fail("the number is too large");
    if (error != std::errc() || (*begin == '0' && end - begin > 1)) fail("expected a whole number");
    at_ += static_cast<std::size_t>(end - begin);
    if (const char c = peek(); c == '.' || c == 'e' || c == 'E') fail("expected a whole number");
    return value;
  }

  // Reads `null`, if that comes next.
  bool take_null() {
    skip_space();
    const bool comes = text_.substr(at_, 4) == "null";
    if (comes) at_ += 4;
    return comes;
  }

  // Throws unless only white space follows.
  void end() {
    skip_space();
    if (at_ != text_.size()) fail("expected nothing more");
  }

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    lockstep::detail::fail<DataError>(where_, ": ", parts..., " (byte ", at_, " of the header)");
  }

 private:
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  void skip_space() {
    while (at_ < text_.size() && std::string_view(" \t\n\r").find(text_[at_]) != text_.npos) ++at_;
  }

  bool take(char c) {
    skip_space();
    if (peek() != c) return false;
    ++at_;
    return true;
  }

  void expect(char c, const char* what) {
    if (!take(c)) fail("expected ", what);
  }

  std::string escape() {
    constexpr std::string_view kLetters = "\"\\/bfnrt";
    constexpr std::string_view kEscaped = "\"\\/\b\f\n\r\t";
    ++at_;
    const char letter = peek();
    if (letter == 'u') {
      const std::uint32_t unit = code_unit();
      if (unit < 0xD800 || unit > 0xDFFF) return to_utf8(unit);
      if (unit > 0xDBFF || text_.substr(at_, 2) != "\\u") fail("half of a surrogate pair");
      ++at_;
      const std::uint32_t low = code_unit();
      if (low < 0xDC00 || low > 0xDFFF) fail("half of a surrogate pair");
      return to_utf8(0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00));
    }
    const std::size_t at = kLetters.find(letter);
    if (at == std::string_view::npos) fail("an unknown escape");
    ++at_;
    return {kEscaped[at]};
  }

  // Reads what follows a backslash: u and four hexadecimal digits.
  std::uint32_t code_unit() {
    const std::string_view digits = text_.substr(at_ + 1, 4);
    std::uint32_t value = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (error != std::errc() || digits.size() != 4 || end != digits.data() + 4) {
      fail("expected four hexadecimal digits");
    }
    at_ += 5;
    return value;
  }

  std::string_view text_;
  std::string_view where_;
  std::size_t at_ = 0;
};

}  // namespace lockstep::io::detail
