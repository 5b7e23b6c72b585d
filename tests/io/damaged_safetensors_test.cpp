// SPDX-License-Identifier: Apache-2.0
#include <lockstep/io/safetensors.hpp>
#include <lockstep/io/safetensors_header.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <string>

#include "io/files.hpp"
#include "io/python_file.hpp"
#include "support/expect_error.hpp"

#include <sys/stat.h>

namespace lockstep {
namespace damaged_safetensors_test {

using testing::little_endian;
using testing::python_file;
using testing::safetensors;
using testing::TempDirectory;
using testing::throws;
using testing::write_file;

// Whether reading a file of these bytes is a DataError that names it and contains `text`.
::testing::AssertionResult refused(const std::string& bytes, const std::string& text) {
  const TempDirectory folder;
  write_file(folder / "damaged", bytes);
  return throws<DataError>([&] { io::load_file(folder / "damaged"); },
                           (folder / "damaged").string(), text);
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + shape +
         "],\"data_offsets\":[" + offsets + "]}";
}

// A file of one tensor, `bytes` long.
std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets,
                std::size_t bytes) {
  return safetensors("{" + entry("a", dtype, shape, offsets) + "}", std::string(bytes, '\0'));
}

TEST(DamagedSafetensors, TruncationsAreFound) {
  const std::string whole = python_file();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    ASSERT_TRUE(refused(whole.substr(0, size), "truncated")) << size;
  }
  EXPECT_TRUE(refused(whole.substr(0, whole.size() - 1), "truncated"));
  EXPECT_TRUE(refused(whole + '\0', "goes on after the 79 bytes"));
}

TEST(DamagedSafetensors, AnyByteOfTheHeaderMayBeAnything) {
  constexpr std::size_t kDataSize = 79;
  const std::string whole = python_file();
  const std::string header = whole.substr(8, whole.size() - 8 - kDataSize);
  std::size_t refusals = 0;
  std::size_t unchanged = 0;
  for (std::size_t at = 0; at < header.size(); ++at) {
    for (const char byte : {'\0', '0', '9', '"', '\\', '{', ']', '\x80', '\xff'}) {
      std::string damaged = header;
      damaged[at] = byte;
      try {
        // What is left to differ are names, which are any, and shapes of the same size.
        const auto parsed = io::detail::parse_header(damaged, kDataSize, "file");
        EXPECT_LE(parsed.tensors.size(), 11U);
        ++unchanged;
      } catch (const DataError&) {
        ++refusals;
      }
    }
  }
  EXPECT_GT(refusals, 10 * unchanged);
}

TEST(DamagedSafetensors, HeaderLengthOutOfRange) {
  EXPECT_TRUE(refused(little_endian(3) + "{}", "a header of 3 bytes in a file of 10"));
  EXPECT_TRUE(refused(little_endian(100'000'000) + "{}", "truncated"));
  EXPECT_TRUE(refused(little_endian(100'000'001) + "{}", "at most 100000000"));
  EXPECT_TRUE(refused(little_endian(~0ULL) + "{}", "at most 100000000"));
  EXPECT_TRUE(refused(little_endian(~0ULL - 7) + "{}", "at most 100000000"));
  EXPECT_TRUE(refused(safetensors(""), "expected '{'"));
}

TEST(DamagedSafetensors, DtypesThatLockstepHasNot) {
  EXPECT_TRUE(refused(one("F8_E4M3", "1", "0,1", 1), "tensor \"a\" is of dtype \"F8_E4M3\""));
  EXPECT_TRUE(refused(one("f32", "1", "0,4", 4), "\"f32\""));
  EXPECT_TRUE(refused(one("", "1", "0,4", 4), "expected F64"));
}

TEST(DamagedSafetensors, ShapesThatDoNotFitTheirBytes) {
  EXPECT_TRUE(refused(one("F32", "2", "0,4", 4), "f32 and shape [2] does not fit the bytes"));
  EXPECT_TRUE(refused(one("F32", "", "0,0", 0), "does not fit"));
  EXPECT_TRUE(refused(one("F32", "0", "0,4", 4), "does not fit"));
  EXPECT_TRUE(refused(one("F32", "1", "4,0", 4), "expected data_offsets [begin, end]"));
  EXPECT_TRUE(refused(one("F32", "1", "0", 4), "expected data_offsets [begin, end]"));
  EXPECT_TRUE(refused(one("F32", "1", "0,4,4", 4), "expected data_offsets [begin, end]"));
  EXPECT_TRUE(refused(one("U8", "1,1,1,1,1,1,1,1,1", "0,1", 1), "more than 8 dimensions"));
}

TEST(DamagedSafetensors, NumbersThatOverflow) {
  // 2⁶² · 4 and 2³² · 2³² are 0 to a 64-bit product.
  EXPECT_TRUE(refused(one("F32", "4611686018427387904", "0,0", 0), "does not fit"));
  EXPECT_TRUE(refused(one("U8", "4294967296,4294967296", "0,0", 0), "does not fit"));
  EXPECT_TRUE(refused(one("U8", "9223372036854775808", "0,0", 0), "a size of"));
  EXPECT_TRUE(refused(one("U8", "18446744073709551616", "0,0", 0), "the number is too large"));
  EXPECT_TRUE(refused(one("U8", "1", "18446744073709551615,18446744073709551615", 1), "fit"));
  EXPECT_TRUE(refused(one("U8", "9000000000000000000", "0,9000000000000000000", 1), "truncated"));
  EXPECT_TRUE(
      refused(one("U8", "1", "18446744073709551614,18446744073709551615", 1), "leaving a hole"));
}

TEST(DamagedSafetensors, LargeSizesOfATensorWithoutElementsAreNone) {
  const TempDirectory folder;
  write_file(folder / "empty", one("F64", "9223372036854775807,0,9223372036854775807", "0,0", 0));
  EXPECT_EQ(io::load_file(folder / "empty").front().tensor.numel(), 0);
}

TEST(DamagedSafetensors, TensorsThatOverlapOrLeaveHoles) {
  const auto two = [](const std::string& first, const std::string& second, std::size_t bytes) {
    return safetensors(
        "{" + entry("a", "U8", "2", first) + "," + entry("b", "U8", "2", second) + "}",
        std::string(bytes, '\0'));
  };
  EXPECT_TRUE(refused(two("0,2", "1,3", 3), "tensor \"b\" begins at byte 1 of the data, within"));
  EXPECT_TRUE(refused(two("0,2", "0,2", 2), "within the one before"));
  EXPECT_TRUE(refused(two("3,5", "0,2", 5), "tensor \"a\" begins at byte 3"));
  EXPECT_TRUE(refused(two("2,4", "4,6", 6), "leaving a hole"));
  EXPECT_TRUE(refused(two("0,2", "2,4", 5), "goes on after the 4 bytes"));
  EXPECT_TRUE(refused(two("0,2", "2,4", 3), "truncated: holds 3 bytes of data, expected 4"));
}

TEST(DamagedSafetensors, FieldsThatAreMissingUnknownOrTwice) {
  const auto fields = [](const std::string& text) { return safetensors("{\"a\":{" + text + "}}"); };
  EXPECT_TRUE(refused(fields(R"("dtype":"U8","shape":[0])"), "dtype, shape and data_offsets"));
  EXPECT_TRUE(refused(fields(""), "dtype, shape and data_offsets"));
  EXPECT_TRUE(refused(fields(R"("dtype":"U8","dtype":"U8")"), "\"dtype\" comes twice"));
  EXPECT_TRUE(refused(fields(R"("x":1)"), "unknown field \"x\""));
  const std::string a = entry("a", "U8", "0", "0,0");
  EXPECT_TRUE(refused(safetensors("{" + a + "," + a + "}"), "the name \"a\" comes twice"));
  EXPECT_TRUE(refused(safetensors(R"({"__metadata__":{},"__metadata__":{}})"), "\"__metadata__\""));
  EXPECT_TRUE(refused(safetensors(R"({"__metadata__":{"k":"1","k":"2"}})"), "\"k\" comes twice"));
  EXPECT_TRUE(refused(safetensors(R"({"__metadata__":{"k":1}})"), "expected a string"));
  EXPECT_TRUE(refused(safetensors(R"({"__metadata__":null})"), "expected an object"));
}

TEST(DamagedSafetensors, DeepNestingIsRefusedAtItsFirstLevel) {
  const std::string deep(1'000'000, '[');
  EXPECT_TRUE(refused(safetensors(deep), "expected '{' (byte 0"));
  EXPECT_TRUE(refused(safetensors("{\"a\":" + deep), "expected an object (byte 5"));
  EXPECT_TRUE(refused(safetensors("{\"a\":{\"shape\":" + deep), "expected a whole number"));
}

TEST(DamagedSafetensors, BoolsThatAreNone) {
  const std::string header = "{" + entry("a", "BOOL", "3", "0,3") + "}";
  EXPECT_TRUE(refused(safetensors(header, {'\1', '\2', '\0'}), "element 1 of the bool tensor"));
}

TEST(DamagedSafetensors, FilesThatAreNone) {
  const TempDirectory folder;
  EXPECT_TRUE(throws<DataError>([&] { io::load_file(folder / "missing"); },
                                (folder / "missing").string(), "No such file"));
  EXPECT_TRUE(throws<DataError>([&] { io::load_file(folder.path()); }, "is not a regular file"));
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_TRUE(throws<DataError>([&] { io::load_file(folder / "pipe"); }, "is not a regular file"));
}

}  // namespace damaged_safetensors_test
}  // namespace lockstep
