// SPDX-License-Identifier: Apache-2.0
#include <lockstep/io/safetensors.hpp>
#include <lockstep/io/safetensors_header.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

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
  std::size_t foreign_dtypes = 0;
  std::size_t unchanged = 0;
  for (std::size_t at = 0; at < header.size(); ++at) {
    for (const char byte : {'\0', '0', '9', '"', '\\', '{', ']', '\x80', '\xff'}) {
      std::string damaged = header;
      damaged[at] = byte;
      try {
        // What is left to differ are names, which are any, and shapes of the same size.
        const auto parsed = io::detail::parse_header(damaged, kDataSize, "file");
        EXPECT_LE(parsed.tensors.size(), 11U);
        const bool foreign =
            std::any_of(parsed.tensors.begin(), parsed.tensors.end(),
                        [](const auto& tensor) { return !tensor.foreign_dtype.empty(); });
        ++(foreign ? foreign_dtypes : unchanged);
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
  EXPECT_TRUE(refused(one("", "1", "0,4", 4), "tensor \"a\": expected a dtype"));
}

TEST(DamagedSafetensors, ATensorOfADtypeThatLockstepHasNotIsRefusedAlone) {
  const TempDirectory folder;
  const std::string header =
      "{" + entry("a", "U8", "2", "0,2") + "," + entry("b", "F8_E4M3", "3", "2,5") + "," +
      entry("c", "U16", "1", "5,7") + "," + entry("d", "U8", "1", "7,8") + "}";
  write_file(folder / "file", safetensors(header, {1, 2, 3, 4, 5, 6, 7, 8}));
  const io::SafetensorsFile file(folder / "file");
  EXPECT_EQ(file.keys(), (std::vector<std::string>{"a", "b", "c", "d"}));
  EXPECT_EQ(file.get_tensor("a").to_vector<std::uint8_t>(), (std::vector<std::uint8_t>{1, 2}));
  EXPECT_EQ(file.get_tensor("d").to_vector<std::uint8_t>(), std::vector<std::uint8_t>{8});
  const std::string expected = ": expected F64, F32, F16, BF16, I64, I32, U8 or BOOL";
  const std::string where = (folder / "file").string();
  EXPECT_TRUE(throws<DataError>([&] { file.get_tensor("b"); },
                                where + ": tensor \"b\" is of dtype \"F8_E4M3\"" + expected));
  EXPECT_TRUE(throws<DataError>([&] { file.get_tensor("c"); },
                                where + ": tensor \"c\" is of dtype \"U16\"" + expected));
  EXPECT_TRUE(throws<DataError>([&] { file.get_tensors(); }, "tensor \"b\""));
  // Its bytes have a place in the file all the same.
  EXPECT_TRUE(refused(one("U16", "1", "1,2", 2), "leaving a hole"));
  EXPECT_TRUE(refused(one("U16", "1", "0,2", 3), "goes on after the 2 bytes"));
}

TEST(DamagedSafetensors, MetadataThatAreNullAreNone) {
  const TempDirectory folder;
  const std::string header = "{\"__metadata__\": null," + entry("a", "U8", "1", "0,1") + "}";
  write_file(folder / "file", safetensors(header, "\7"));
  const io::SafetensorsFile file(folder / "file");
  EXPECT_TRUE(file.metadata().empty());
  EXPECT_EQ(file.get_tensor("a").to_vector<std::uint8_t>(), std::vector<std::uint8_t>{7});
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
  EXPECT_TRUE(refused(safetensors(R"({"__metadata__":nul})"), "expected an object"));
  EXPECT_TRUE(refused(safetensors(R"({"__metadata__":nullx})"), "expected ',' or '}'"));
  EXPECT_TRUE(refused(safetensors(R"({"a":null})"), "expected an object"));
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
