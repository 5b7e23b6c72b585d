// SPDX-License-Identifier: Apache-2.0
#include <lockstep/io/atomic_file.hpp>

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <span>
#include <string>

#include "io/files.hpp"
#include "support/expect_error.hpp"

#include <sys/resource.h>

namespace lockstep {
namespace atomic_file_test {

using io::detail::AtomicFile;
using testing::files_in;
using testing::read_file;
using testing::TempDirectory;
using testing::throws;
using testing::write_file;

void put(AtomicFile& file, const std::string& text) { file.write(std::as_bytes(std::span(text))); }

// While it lives, no file of this process may grow beyond `bytes`, and trying is an error only.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

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

TEST(AtomicFile, RefusesPlacesWhereNoFileCanBe) {
  const TempDirectory folder;
  EXPECT_TRUE(throws<DataError>([&] { AtomicFile(folder / "none" / "file"); }, "No such file"));
  EXPECT_TRUE(throws<DataError>([&] { AtomicFile(folder / ""); }, "no file name"));
  EXPECT_TRUE(throws<DataError>([&] { AtomicFile(""); }, "no file name"));
}

}  // namespace atomic_file_test
}  // namespace lockstep
