// SPDX-License-Identifier: Apache-2.0
#include <lockstep/atomic_file.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "io/files.hpp"
#include "support/expect_error.hpp"
#include "support/file_size_limit.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace lockstep {
namespace atomic_file_test {

using detail::AtomicFile;
using testing::files_in;
using testing::FileSizeLimit;
using testing::read_file;
using testing::TempDirectory;
using testing::throws;
using testing::write_file;

void put(AtomicFile& file, const std::string& text) { file.write(std::as_bytes(std::span(text))); }

TEST(AtomicFile, AppearsWholeWhenItIsCommitted) {
  const TempDirectory folder;
  write_file(folder / "file", "old");
  AtomicFile file(folder / "file");
  put(file, "new ");
  put(file, "text");
  EXPECT_EQ(read_file(folder / "file"), "old");
  file.commit();
  EXPECT_EQ(read_file(folder / "file"), "new text");
  EXPECT_EQ(files_in(folder.path()), 1);
}

TEST(AtomicFile, WithoutCommitNothingIsLeft) {
  const TempDirectory folder;
  write_file(folder / "file", "old");
  {
    AtomicFile file(folder / "file");
    put(file, "new");
    EXPECT_EQ(files_in(folder.path()), 2);
  }
  EXPECT_EQ(read_file(folder / "file"), "old");
  EXPECT_EQ(files_in(folder.path()), 1);
}

TEST(AtomicFile, AFailedWriteLeavesTheOldFile) {
  const TempDirectory folder;
  write_file(folder / "file", "old");
  const std::string text(100'000, 'x');
  bool refused = false;
  {
    const FileSizeLimit limit(5'000);
    try {
      AtomicFile file(folder / "file");
      put(file, text);
    } catch (const DataError&) {
      refused = true;
    }
  }
  EXPECT_TRUE(refused);
  EXPECT_EQ(read_file(folder / "file"), "old");
  EXPECT_EQ(files_in(folder.path()), 1);
}

TEST(AtomicFile, AFailedRenameRemovesTheTemporaryFile) {
  const TempDirectory folder;
  std::filesystem::create_directory(folder / "file");
  AtomicFile file(folder / "file");
  put(file, "new");
  EXPECT_TRUE(throws<DataError>([&] { file.commit(); }, (folder / "file").string(), "replaced"));
  EXPECT_EQ(files_in(folder.path()), 2);
  {
    AtomicFile other(folder / "file");
    EXPECT_TRUE(throws<DataError>([&] { other.commit(); }, "replaced"));
  }
  EXPECT_EQ(files_in(folder.path()), 2) << "the first one's is still there, the second's is not";
}

TEST(AtomicFile, KeepsThePermissionsOfTheFileThatItReplaces) {
  namespace fs = std::filesystem;
  const TempDirectory folder;
  write_file(folder / "file", "old");
  fs::permissions(folder / "file", fs::perms::owner_read);
  AtomicFile file(folder / "file");
  put(file, "new");
  file.commit();
  EXPECT_EQ(read_file(folder / "file"), "new");
  EXPECT_EQ(fs::status(folder / "file").permissions(), fs::perms::owner_read);
}

// Renaming a file over a device would take the device away.
TEST(AtomicFile, WritesWhatIsNoFileAsItIs) {
  const TempDirectory folder;
  EXPECT_TRUE(throws<DataError>([] { put(*std::make_unique<AtomicFile>("/dev/full"), "text"); },
                                "/dev/full: cannot be written: No space left"));
  std::filesystem::create_symlink("/dev/null", folder / "link");
  AtomicFile null(folder / "link");
  put(null, "text");
  null.commit();
  EXPECT_EQ(files_in(folder.path()), 1);
  EXPECT_TRUE(std::filesystem::is_character_file(folder / "link"));

  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  const int reader = ::open((folder / "pipe").c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  {
    AtomicFile pipe(folder / "pipe");
    put(pipe, "text");
    pipe.commit();
  }
  std::string text(10, '\0');
  text.resize(static_cast<std::size_t>(::read(reader, text.data(), text.size())));
  ::close(reader);
  EXPECT_EQ(text, "text");
  EXPECT_EQ(files_in(folder.path()), 2);
}

// As /dev/stdout leads to what the shell has opened for the process.
TEST(AtomicFile, WritesWhatTheProcessHasOpenAsItIs) {
  const TempDirectory folder;
  write_file(folder / "log", "before ");
  const int log = ::open((folder / "log").c_str(), O_WRONLY | O_APPEND);
  ASSERT_GE(log, 0);
  std::filesystem::create_symlink("/dev/fd/" + std::to_string(log), folder / "stdout");
  {
    AtomicFile file(folder / "stdout");
    put(file, "after");
    file.commit();
  }
  ::close(log);
  EXPECT_EQ(read_file(folder / "log"), "before after");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "stdout"));
  EXPECT_EQ(files_in(folder.path()), 2);
}

TEST(AtomicFile, RefusesPlacesWhereNoFileCanBe) {
  const TempDirectory folder;
  EXPECT_TRUE(throws<DataError>([&] { AtomicFile(folder / "none" / "file"); }, "No such file"));
  EXPECT_TRUE(throws<DataError>([&] { AtomicFile(folder / ""); }, "no file name"));
  EXPECT_TRUE(throws<DataError>([&] { AtomicFile(""); }, "no file name"));
}

}  // namespace atomic_file_test
}  // namespace lockstep
