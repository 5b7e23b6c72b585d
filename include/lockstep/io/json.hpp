// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/error.hpp>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>

// As much of JSON (RFC 8259) as the header of a safetensors file is made of.
namespace lockstep::io::detail {

// How many bytes the well-formed UTF-8 sequence has that `text` begins with (Unicode 15, table
// 3-7); 0 if it begins with none.
std::size_t utf8_length(std::string_view text);

bool is_utf8(std::string_view text);

// `code`, which is no surrogate, in UTF-8.
std::string to_utf8(std::uint32_t code);

// `text` as a JSON string, in quotes.
std::string json_string(std::string_view text);

// Reads a text in the order in which its caller expects what is in it. No tree is built and nothing
// is skipped, so the text can be no deeper than the caller looks.
//
// **Threads and exceptions.** Whatever is not as the caller expects or as the grammar has it is a
// DataError: `where`, which outlives the reader, what was expected, and the byte of the text.
class JsonReader {
 public:
  JsonReader(std::string_view text, std::string_view where) : text_(text), where_(where) {}

  // Calls `member(std::string key)`, which reads the value, for each member. A key that comes twice
  // is refused.
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

  // Calls `element()`, which reads it, for each element.
  template <class Element>
  void array(Element&& element) {
    expect('[', "an array");
    if (take(']')) return;
    do {
      element();
    } while (take(','));
    expect(']', "',' or ']'");
  }

  std::string string();

  // A whole number of at least 0, without point or exponent.
  std::uint64_t whole_number();

  // Nothing but white space may follow.
  void end();

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    lockstep::detail::fail<DataError>(where_, ": ", parts..., " (byte ", at_, " of the header)");
  }

 private:
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  void skip_space();

  bool take(char c);

  void expect(char c, const char* what);

  std::string escape();

  // Reads what follows the backslash: u and four hexadecimal digits.
  std::uint32_t code_unit();

  std::string_view text_;
  std::string_view where_;
  std::size_t at_ = 0;
};

}  // namespace lockstep::io::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/io/impl/json.ipp>
#endif
