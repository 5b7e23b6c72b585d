// SPDX-License-Identifier: Apache-2.0
#include <lockstep/data/files/gzip_file.hpp>

#include "data/files.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gzip_file_test {

using lockstep::DataError;
using lockstep::data::GzipFile;
using lockstep::testing::contains;
using lockstep::testing::message_of;
using lockstep::testing::read_file;
using lockstep::testing::TempDirectory;
using lockstep::testing::write_file;
using lockstep::testing::write_gzip;

// Bytes that deflate cannot make much smaller, so that a cut or a changed byte is within the data.
std::string noise(std::size_t count) {
  std::string bytes;
  std::uint32_t state = 1;
  for (std::size_t i = 0; i < count; ++i) {
    state = state * 1664525U + 1013904223U;
    bytes.push_back(static_cast<char>(state >> 24));
  }
  return bytes;
}

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(GzipFile, ReadsPackedAndPlainFilesAlike) {
  const TempDirectory directory;
  const std::string bytes = noise(300'000);
  write_gzip(directory / "packed.gz", bytes);
  write_file(directory / "plain", bytes);
  write_gzip(directory / "packed_without_the_name", bytes);
  for (const char* name : {"packed.gz", "plain", "packed_without_the_name"}) {
    GzipFile file(directory / name);
    std::array<std::byte, 3> first{};
    file.read(first);
    EXPECT_EQ(static_cast<char>(first[2]), bytes[2]) << name;
    EXPECT_EQ(file.position(), 3U);
    EXPECT_EQ(text_of(file.read(240'000)), bytes.substr(3, 240'000)) << name;
    EXPECT_EQ(text_of(file.read(bytes.size() - 240'003)), bytes.substr(240'003)) << name;
    EXPECT_NO_THROW(file.expect_end());
    EXPECT_EQ(file.position(), bytes.size());
  }
}

TEST(GzipFile, IsNotOpenInAProgramThatIsStarted) {
  const TempDirectory directory;
  write_file(directory / "plain", "text");
  const int next = ::open("/dev/null", O_RDONLY | O_CLOEXEC);  // the lowest that is free
  ::close(next);
  const GzipFile file(directory / "plain");
  EXPECT_EQ(::fcntl(next, F_GETFD), FD_CLOEXEC);
}

TEST(GzipFile, TakesSeveralStreamsAsOne) {
  const TempDirectory directory;
  write_gzip(directory / "a", "one ");
  write_gzip(directory / "b", "two");
  write_file(directory / "both.gz", read_file(directory / "a") + read_file(directory / "b"));
  GzipFile file(directory / "both.gz");
  EXPECT_EQ(text_of(file.read(7)), "one two");
  EXPECT_NO_THROW(file.expect_end());
}

TEST(GzipFile, SaysWhichFileIsMissing) {
  const TempDirectory directory;
  EXPECT_TRUE(contains(message_of<DataError>([&] { GzipFile(directory / "nothing.gz"); }),
                       (directory / "nothing.gz").string(), "No such file or directory"));
}

TEST(GzipFile, SaysThatADirectoryIsNoFile) {
  const TempDirectory directory;
  EXPECT_TRUE(contains(message_of<DataError>([&] { (void)GzipFile(directory.path()).read(1); }),
                       "cannot be read after byte 0", "Is a directory"));
}

TEST(GzipFile, SaysAtWhichByteAPlainFileEnds) {
  const TempDirectory directory;
  write_file(directory / "short", noise(1000));
  GzipFile file(directory / "short");
  (void)file.read(600);
  EXPECT_TRUE(
      contains(message_of<DataError>([&] { (void)file.read(900); }),
               "short: truncated: ends at byte 1000 of the unpacked stream, expected 1500"));
}

// Wherever a packed file is cut, in its header, its data or its checksum, it is an error, and never
// one that claims more bytes than there are.
TEST(GzipFile, NoticesACutAtEveryByte) {
  const TempDirectory directory;
  const std::string bytes = noise(500);
  write_gzip(directory / "whole.gz", bytes);
  const std::string packed = read_file(directory / "whole.gz");
  ASSERT_GT(packed.size(), bytes.size());
  for (std::size_t length = 0; length < packed.size(); ++length) {
    write_file(directory / "cut.gz", packed.substr(0, length));
    GzipFile file(directory / "cut.gz");
    const std::string message = message_of<DataError>([&] {
      (void)file.read(bytes.size());
      file.expect_end();
    });
    EXPECT_TRUE(contains(message, "cut.gz: truncated: ")) << length;
    EXPECT_LE(file.position(), bytes.size()) << length;
  }
}

TEST(GzipFile, SaysWhereACutPackedStreamEnds) {
  const TempDirectory directory;
  const std::string bytes = noise(1'000'000);
  write_gzip(directory / "whole.gz", bytes);
  const std::string packed = read_file(directory / "whole.gz");
  write_file(directory / "cut.gz", packed.substr(0, packed.size() / 2));
  GzipFile file(directory / "cut.gz");
  const std::string message = message_of<DataError>([&] { (void)file.read(bytes.size()); });
  EXPECT_GT(file.position(), 400'000U);
  EXPECT_LT(file.position(), 600'000U);
  EXPECT_TRUE(contains(message, "ends at byte " + std::to_string(file.position()),
                       "expected 1000000", "unexpected end of file"));
}

TEST(GzipFile, SaysThatOnlyTheChecksumIsMissing) {
  const TempDirectory directory;
  write_gzip(directory / "whole.gz", noise(500));
  const std::string packed = read_file(directory / "whole.gz");
  write_file(directory / "cut.gz", packed.substr(0, packed.size() - 8));
  GzipFile file(directory / "cut.gz");
  EXPECT_EQ(file.read(500).size(), 500U);
  EXPECT_TRUE(contains(message_of<DataError>([&] { file.expect_end(); }),
                       "truncated: gzip's checksum after byte 500 is cut off"));
}

TEST(GzipFile, NoticesADamagedStream) {
  const TempDirectory directory;
  const std::string bytes = noise(500'000);
  write_gzip(directory / "whole.gz", bytes);
  std::string packed = read_file(directory / "whole.gz");
  // In the data: noticed while unpacking, or at the latest by the checksum.
  packed[packed.size() / 2] = static_cast<char>(~packed[packed.size() / 2]);
  write_file(directory / "damaged.gz", packed);
  GzipFile file(directory / "damaged.gz");
  EXPECT_TRUE(contains(message_of<DataError>([&] {
                         (void)file.read(bytes.size());
                         file.expect_end();
                       }),
                       "damaged.gz: corrupt after byte ", "incorrect data check"));
}

TEST(GzipFile, GivesZlibsWordsForABadBlock) {
  const TempDirectory directory;
  write_gzip(directory / "whole.gz", std::string(100, 'a'));
  std::string packed = read_file(directory / "whole.gz");
  packed[10] = static_cast<char>(packed[10] | 0x06);  // block type 3, which there is none of
  write_file(directory / "damaged.gz", packed);
  GzipFile file(directory / "damaged.gz");
  EXPECT_TRUE(contains(message_of<DataError>([&] { (void)file.read(100); }), "corrupt after byte 0",
                       "invalid block type"));
}

TEST(GzipFile, NoticesTrailingBytes) {
  const TempDirectory directory;
  write_gzip(directory / "long.gz", "123456");
  write_file(directory / "long", "123456");
  for (const char* name : {"long.gz", "long"}) {
    GzipFile file(directory / name);
    (void)file.read(5);
    EXPECT_TRUE(contains(message_of<DataError>([&] { file.expect_end(); }),
                         "goes on after the 5 bytes expected"));
  }
}

TEST(GzipFile, TakesNoMemoryForBytesThatAreNotThere) {
  const TempDirectory directory;
  write_gzip(directory / "short.gz", "123");
  GzipFile file(directory / "short.gz");
  // More than any machine has: a std::bad_alloc if it were tried.
  EXPECT_THROW((void)file.read(std::uint64_t{1} << 60), DataError);
}

}  // namespace gzip_file_test
