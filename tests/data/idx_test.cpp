// SPDX-License-Identifier: Apache-2.0
#include <lockstep/data/idx.hpp>

#include "data/files.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

namespace idx_test {

using lockstep::DataError;
using lockstep::Dtype;
using lockstep::Shape;
using lockstep::Tensor;
using lockstep::data::read_idx;
using lockstep::testing::big_endian;
using lockstep::testing::contains;
using lockstep::testing::idx_header;
using lockstep::testing::message_of;
using lockstep::testing::TempDirectory;
using lockstep::testing::values_of;
using lockstep::testing::write_file;
using lockstep::testing::write_gzip;

std::string failure(const std::string& bytes) {
  const TempDirectory directory;
  write_file(directory / "array.idx", bytes);
  const std::string plain = message_of<DataError>([&] { read_idx(directory / "array.idx"); });
  write_gzip(directory / "array.idx", bytes);
  EXPECT_EQ(message_of<DataError>([&] { read_idx(directory / "array.idx"); }), plain);
  EXPECT_TRUE(contains(plain, "array.idx: "));
  return plain;
}

TEST(Idx, ReadsBytesPlainAndPacked) {
  const TempDirectory directory;
  const std::string bytes = idx_header(8, {2, 3}) + std::string("\0\1\2\3\4\xFF", 6);
  write_file(directory / "plain", bytes);
  write_gzip(directory / "packed.gz", bytes);
  for (const char* name : {"plain", "packed.gz"}) {
    const Tensor array = read_idx(directory / name);
    EXPECT_EQ(array.sizes(), (Shape{2, 3}));
    EXPECT_EQ(array.dtype(), Dtype::u8);
    EXPECT_TRUE(array.device().is_host_memory());
    EXPECT_EQ(values_of<std::uint8_t>(array), (std::vector<std::uint8_t>{0, 1, 2, 3, 4, 255}));
  }
}

TEST(Idx, ReadsNumbersOfEveryWidth) {
  const TempDirectory directory;
  write_file(directory / "i32",
             idx_header(12, {2}) + big_endian(0x01020304) + big_endian(0xFFFFFFFE));
  EXPECT_EQ(values_of<std::int32_t>(read_idx(directory / "i32")),
            (std::vector<std::int32_t>{0x01020304, -2}));
  write_file(directory / "f32", idx_header(13, {1, 2}) +
                                    big_endian(std::bit_cast<std::uint32_t>(1.5F)) +
                                    big_endian(std::bit_cast<std::uint32_t>(-3e20F)));
  EXPECT_EQ(values_of<float>(read_idx(directory / "f32")), (std::vector<float>{1.5F, -3e20F}));
  write_file(directory / "f64", idx_header(14, {2}) +
                                    big_endian(std::bit_cast<std::uint64_t>(0.1), 8) +
                                    big_endian(std::bit_cast<std::uint64_t>(-1e300), 8));
  EXPECT_EQ(values_of<double>(read_idx(directory / "f64")), (std::vector<double>{0.1, -1e300}));
}

TEST(Idx, ReadsArraysWithoutElementsAndWithoutDimensions) {
  const TempDirectory directory;
  // The other sizes of an empty array do not count, however large.
  write_file(directory / "empty", idx_header(13, {0, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}));
  EXPECT_EQ(read_idx(directory / "empty").numel(), 0);
  write_file(directory / "scalar", idx_header(8, {}) + "\7");
  EXPECT_EQ(read_idx(directory / "scalar").sizes(), Shape{});
  write_file(directory / "most", idx_header(8, {1, 1, 1, 1, 1, 1, 1, 0}));
  EXPECT_EQ(read_idx(directory / "most").sizes(), (Shape{1, 1, 1, 1, 1, 1, 1, 0}));
}

TEST(Idx, SaysWhatIsNotAnIdxFile) {
  EXPECT_TRUE(contains(failure("<html></html>"), "not an idx file: starts with the bytes 60 104"));
  EXPECT_TRUE(contains(failure(std::string("\0\1\x8\0", 4)), "starts with the bytes 0 1"));
  EXPECT_TRUE(contains(failure(std::string("\1\0\x8\0", 4)), "starts with the bytes 1 0"));
  EXPECT_TRUE(contains(failure(std::string("\0\0\1\1\0\0\0\0", 8)), "idx type at byte 2 is 1"));
  EXPECT_TRUE(contains(failure(idx_header(9, {1}) + "a"), "numbers of 8 bits with sign"));
  EXPECT_TRUE(contains(failure(idx_header(11, {1}) + "ab"), "numbers of 16 bits with sign"));
  EXPECT_TRUE(contains(failure(idx_header(8, {1, 1, 1, 1, 1, 1, 1, 1, 1}) + "a"),
                       "has 9 dimensions, expected at most 8"));
}

// At every byte: within the magic, within a size, and within the data.
TEST(Idx, NoticesTruncationAtEveryByte) {
  const std::string whole = idx_header(12, {1, 3}) + big_endian(1) + big_endian(2) + big_endian(3);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const std::size_t needed = length < 4 ? 4 : length < 8 ? 8 : length < 12 ? 12 : whole.size();
    EXPECT_TRUE(contains(failure(whole.substr(0, length)),
                         "truncated: ends at byte " + std::to_string(length),
                         "expected " + std::to_string(needed)));
  }
}

TEST(Idx, NoticesTrailingBytes) {
  EXPECT_TRUE(contains(failure(idx_header(8, {2}) + "abc"), "goes on after the 10 bytes expected"));
}

TEST(Idx, TakesNoMemoryForSizesThatAreNotThere) {
  EXPECT_TRUE(contains(failure(idx_header(8, {0xFFFFFFFF}) + "abc"),
                       "ends at byte 11 of the unpacked stream, expected 4294967303"));
  EXPECT_TRUE(
      contains(failure(idx_header(14, {0xFFFFFFFF, 0x00FFFFFF}) + "abc"), "ends at byte 15"));
  EXPECT_TRUE(contains(failure(idx_header(8, {0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}) + "abc"),
                       "more than memory can hold"));
}

}  // namespace idx_test
