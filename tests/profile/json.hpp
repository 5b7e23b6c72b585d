// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>

#include <charconv>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

// Any JSON text as a tree, for tests that look at what was written. Throws an Error for what is
// none.
namespace lockstep::testing {

struct Json {
  std::map<std::string, Json> object{};
  std::vector<Json> array{};
  std::string text{};
  double number = 0;

  const Json& operator[](const std::string& key) const {
    const auto member = object.find(key);
    check<Error>(member != object.end(), "JSON: there is no member ", key);
    return member->second;
  }
  bool has(const std::string& key) const { return object.count(key) > 0; }
};

class JsonParser {
 public:
  explicit JsonParser(std::string_view text) : text_(text) {}

  Json parse() {
    const Json whole = value();
    skip_space();
    check<Error>(at_ == text_.size(), "JSON: more behind the end, at byte ", at_);
    return whole;
  }

 private:
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip_space() {
    while (peek() == ' ' || peek() == '\n') ++at_;
  }
  bool take(char c) {
    skip_space();
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) { check<Error>(take(c), "JSON: expected ", c, " at byte ", at_); }

  Json value() {
    Json result;
    if (take('{')) {
      if (take('}')) return result;
      do {
        skip_space();
        const std::string key = string();
        expect(':');
        check<Error>(result.object.emplace(key, value()).second, "JSON: ", key, " comes twice");
      } while (take(','));
      expect('}');
    } else if (take('[')) {
      if (take(']')) return result;
      do {
        result.array.push_back(value());
      } while (take(','));
      expect(']');
    } else if (peek() == '"') {
      result.text = string();
    } else {
      const char* const begin = text_.data() + at_;
      const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), result.number);
      check<Error>(error == std::errc() && end != begin, "JSON: no value at byte ", at_);
      at_ += static_cast<std::size_t>(end - begin);
    }
    return result;
  }

  std::string string() {
    expect('"');
    std::string result;
    while (peek() != '"') {
      const auto byte = static_cast<unsigned char>(peek());
      check<Error>(at_ < text_.size() && byte >= 0x20, "JSON: a bad string at byte ", at_);
      if (byte != '\\') {
        result += text_[at_++];
        continue;
      }
      ++at_;
      if (peek() == 'u') {  // as it stands
        result += "\\" + std::string(text_.substr(at_, 5));
        at_ += 5;
      } else {
        check<Error>(peek() == '"' || peek() == '\\', "JSON: an unknown escape at byte ", at_);
        result += text_[at_++];
      }
    }
    ++at_;
    return result;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

inline Json parse_json(std::string_view text) { return JsonParser(text).parse(); }

}  // namespace lockstep::testing
