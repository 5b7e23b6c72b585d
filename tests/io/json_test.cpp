// SPDX-License-Identifier: Apache-2.0
#include <lockstep/error.hpp>
#include <lockstep/io/json.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "support/expect_error.hpp"

namespace lockstep {
namespace json_test {

using testing::throws;

std::string read_string(const std::string& text) {
  io::detail::JsonReader json(text, "text");
  std::string result = json.string();
  json.end();
  return result;
}

std::uint64_t read_number(const std::string& text) {
  io::detail::JsonReader json(text, "text");
  const std::uint64_t result = json.whole_number();
  json.end();
  return result;
}

::testing::AssertionResult refused(const std::string& text, const std::string& message) {
  return throws<DataError>([&] { read_string(text); }, "text: ", message);
}

::testing::AssertionResult not_a_number(const std::string& text, const std::string& message) {
  return throws<DataError>([&] { read_number(text); }, "text: ", message);
}

TEST(Json, StringsComeBackAsTheyWere) {
  std::string all;
  for (char c = 0; c < 127; ++c) all += c;
  all += "\u00e9\u20ac\ud7ff\ue000\U0001f600\U0010ffff";
  EXPECT_EQ(read_string(io::detail::json_string(all)), all);
  EXPECT_EQ(io::detail::json_string("\n\"\\/\x01"), R"("\n\"\\/\u0001")");
}

TEST(Json, ReadsEveryEscape) {
  EXPECT_EQ(read_string(R"( "\"\\\/\b\f\n\r\t" )"), "\"\\/\b\f\n\r\t");
  EXPECT_EQ(read_string(R"("\u0041\u00e9\u20AC\uD83D\uDE00")"), "A\u00e9\u20ac\U0001f600");
  EXPECT_EQ(read_string(R"("\u0000")"), std::string(1, '\0'));
  EXPECT_EQ(read_string(R"("\u007f\u0080\u07ff\u0800")"), "\x7f\u0080\u07ff\u0800");
}

TEST(Json, RefusesEscapesThatAreNone) {
  EXPECT_TRUE(refused(R"("\x41")", "an unknown escape (byte 2 of the header)"));
  EXPECT_TRUE(refused("\"\\", "an unknown escape"));
  EXPECT_TRUE(refused(R"("\u12")", "four hexadecimal digits"));
  EXPECT_TRUE(refused(R"("\u12g4")", "four hexadecimal digits"));
  EXPECT_TRUE(refused(R"("\u-123")", "four hexadecimal digits"));
  EXPECT_TRUE(refused(R"("\u)", "four hexadecimal digits"));
  EXPECT_TRUE(refused(R"("\ud83d")", "half of a surrogate pair"));
  EXPECT_TRUE(refused(R"("\ud83dA")", "half of a surrogate pair"));
  EXPECT_TRUE(refused(R"("\ud83d\u0041")", "half of a surrogate pair"));
  EXPECT_TRUE(refused(R"("\ude00")", "half of a surrogate pair"));
}

TEST(Json, RefusesStringsThatAreNotUtf8) {
  for (const char* text : {"\x80", "\xc0\x80", "\xc1\xbf", "\xc3", "\xe0\x9f\xbf", "\xed\xa0\x80",
                           "\xe2\x82", "\xf0\x8f\xbf\xbf",
                           "\xf0"
                           "text",
                           "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff"}) {
    EXPECT_TRUE(refused('"' + std::string(text) + '"', "not UTF-8"));
    EXPECT_FALSE(io::detail::is_utf8(text));
  }
}

TEST(Json, RefusesControlCharactersAndOpenEnds) {
  EXPECT_TRUE(refused("\"a\nb\"", "control character"));
  EXPECT_TRUE(refused(std::string("\"\0\"", 3), "control character"));
  EXPECT_TRUE(refused("\"abc", "does not end"));
  EXPECT_TRUE(refused("", "expected a string"));
  EXPECT_TRUE(refused("\"a\" b", "expected nothing more (byte 4 of the header)"));
}

TEST(Json, WholeNumbersAreStrict) {
  EXPECT_EQ(read_number("0"), 0U);
  EXPECT_EQ(read_number(" 18446744073709551615 "), std::numeric_limits<std::uint64_t>::max());
  EXPECT_TRUE(not_a_number("18446744073709551616", "too large"));
  for (const char* text : {"", "-1", "+1", "01", "1.0", "1e3", "1E3", "x", "null", "\"1\""}) {
    EXPECT_TRUE(not_a_number(text, "expected a whole number")) << text;
  }
}

TEST(Json, NumbersEndWhereTheTextEnds) {
  io::detail::JsonReader json(std::string_view("1234").substr(0, 2), "text");
  EXPECT_EQ(json.whole_number(), 12U);
}

TEST(Json, ReadsObjectsAndArraysMemberByMember) {
  std::string seen;
  io::detail::JsonReader json(R"( { "a" : [ 1 , 2 ] , "b":[]	,"c":{} } )", "text");
  json.object([&](const std::string& key) {
    seen += key;
    if (key == "c") return json.object([](const std::string&) { FAIL(); });
    json.array([&] { seen += std::to_string(json.whole_number()); });
  });
  json.end();
  EXPECT_EQ(seen, "a12bc");
}

TEST(Json, RefusesCommasThatAreTooManyOrTooFew) {
  const auto read = [](const std::string& text) {
    return [text] {
      io::detail::JsonReader json(text, "text");
      json.object([&](const std::string&) { json.array([&] { (void)json.whole_number(); }); });
      json.end();
    };
  };
  EXPECT_TRUE(throws<DataError>(read(R"({"a":[],})"), "expected a string"));
  EXPECT_TRUE(throws<DataError>(read(R"({"a":[] "b":[]})"), "expected ',' or '}'"));
  EXPECT_TRUE(throws<DataError>(read(R"({"a" []})"), "expected ':'"));
  EXPECT_TRUE(throws<DataError>(read(R"({"a":[1,]})"), "expected a whole number"));
  EXPECT_TRUE(throws<DataError>(read(R"({"a":[1 2]})"), "expected ',' or ']'"));
  EXPECT_TRUE(throws<DataError>(read(R"({"a":[1)"), "expected ',' or ']'"));
  EXPECT_TRUE(throws<DataError>(read(R"({"a":[],"a":[]})"), "the name \"a\" comes twice"));
  EXPECT_TRUE(throws<DataError>(read("{a:[]}"), "expected a string"));
}

}  // namespace json_test
}  // namespace lockstep
