// SPDX-License-Identifier: Apache-2.0
#include <lockstep/distributed/store/file_store.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <optional>
#include <string>

#include "data/files.hpp"
#include "support/expect_error.hpp"
#include "support/forked.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

namespace lockstep::distributed {
namespace file_store_test {

using std::chrono::milliseconds;
using testing::TempDirectory;
using testing::throws;

constexpr milliseconds kAtOnce{0};

// What a process leaves that is killed while it writes: a change cut off at any byte.
TEST(FileStore, AChangeThatWasCutShortIsDropped) {
  const TempDirectory folder;
  const std::filesystem::path path = folder / "store";
  std::size_t before = 0;
  {
    FileStore store(path);
    store.set("whole", "1");
    before = std::filesystem::file_size(path);
    store.set("torn", "2");
  }
  const std::size_t whole = std::filesystem::file_size(path);
  for (std::size_t size = before; size < whole; ++size) {
    std::filesystem::remove(folder / "copy");
    std::filesystem::copy_file(path, folder / "copy");
    std::filesystem::resize_file(folder / "copy", size);
    FileStore a(folder / "copy");
    FileStore b(folder / "copy");
    EXPECT_EQ(b.get("whole", kAtOnce), "1");
    EXPECT_FALSE(b.check({{"torn"}})) << size;
    a.set("n", "");  // is shorter
    EXPECT_EQ(b.get("n", kAtOnce), "");
    EXPECT_EQ(b.num_keys(), 2);
  }
}

TEST(FileStore, ADamagedFileIsNamed) {
  const TempDirectory folder;
  const std::filesystem::path path = folder / "store";
  std::ofstream(path) << "this is some other file, longer than any frame is";
  EXPECT_TRUE(throws<StoreError>([&] { FileStore{path}; }, path.string(), "damaged"));
  const std::string unknown("\x01\0\0\0\x63", 5);
  std::ofstream(path, std::ios::binary) << unknown;
  EXPECT_TRUE(throws<StoreError>([&] { FileStore{path}; }, "unknown request", "byte 5"));
  const std::string no_change("\x0a\0\0\0\x02\x01\0\0\0\x01\0\0\0k", 14);  // a get
  std::ofstream(path, std::ios::binary) << no_change;
  EXPECT_TRUE(throws<StoreError>([&] { FileStore{path}; }, "unknown change"));
  const std::string longer("\x06\0\0\0\x09\0\0\0\0\x61", 10);
  std::ofstream(path, std::ios::binary) << longer;
  EXPECT_TRUE(throws<StoreError>([&] { FileStore{path}; }, "a frame is too long"));
  const std::string unfinished = std::string("\x1f\x8b\x08\0", 4) + std::string(100, 'x');  // gzip
  std::ofstream(path, std::ios::binary) << unfinished;
  EXPECT_TRUE(throws<StoreError>([&] { FileStore{path}; }, "not a store"));
  EXPECT_EQ(std::filesystem::file_size(path), unfinished.size());
  EXPECT_TRUE(throws<StoreError>([&] { FileStore{folder.path()}; }, folder.path().string()));
  EXPECT_TRUE(throws<StoreError>([&] { FileStore{folder / "no" / "folder"}; }, "No such file"));
}

TEST(FileStore, WhatIsNoRegularFileIsRefused) {
  EXPECT_TRUE(
      throws<StoreError>([] { FileStore{"/dev/null"}; }, "/dev/null is not a regular file"));
}

TEST(FileStore, AFileThatBecomesShorterIsAnError) {
  const TempDirectory folder;
  FileStore store(folder / "store");
  store.set("a", "1");
  EXPECT_EQ(store.get("a"), "1");
  std::filesystem::resize_file(folder / "store", 3);
  EXPECT_TRUE(throws<StoreError>([&] { store.get("a"); }, "shorter"));
}

// As when the process that has it is stopped.
TEST(FileStore, ALockThatIsNotGivenBackIsAnErrorAndNoHang) {
  const TempDirectory folder;
  FileStore store(folder / "store");
  store.set("a", "1");
  const int other = ::open((folder / "store").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(other, LOCK_EX), 0);
  store.set_timeout(milliseconds(10));
  EXPECT_TRUE(throws<StoreError>([&] { store.set("b", "2"); }, "is locked", "0.01 s"));
  EXPECT_TRUE(throws<StoreError>([&] { FileStore(folder / "store", 0, kAtOnce); }, "is locked"));
  ::close(other);  // and as when that process dies
  store.set("b", "2");
  EXPECT_EQ(store.get("b"), "2");
}

// A thread that waits for the lock keeps no other thread of its process longer than that one's time
// limit.
TEST(FileStore, EachThreadWaitsForTheLockAsLongAsItWasTold) {
  const TempDirectory folder;
  FileStore store(folder / "store");
  FileStore(folder / "store").set("a", "1");  // which `store` has not read
  const int other = ::open((folder / "store").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(other, LOCK_EX), 0);
  auto patient = std::async(std::launch::async, [&] { store.get("a"); });
  EXPECT_EQ(patient.wait_for(milliseconds(20)), std::future_status::timeout);
  auto other_thread = std::async(std::launch::async, [&] {
    return throws<StoreError>([&] { store.get("a", milliseconds(10)); }, "is locked", "0.01 s");
  });
  EXPECT_EQ(other_thread.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  ::close(other);
  EXPECT_TRUE(other_thread.get());
  patient.get();
}

TEST(FileStore, TheLastOfTheWorkersRemovesTheFile) {
  const TempDirectory folder;
  const std::filesystem::path path = folder / "store";
  auto a = std::make_unique<FileStore>(path, 2);
  auto b = std::make_unique<FileStore>(path, 2);
  a->set("key", "1");
  a.reset();
  EXPECT_TRUE(std::filesystem::exists(path));
  EXPECT_EQ(b->get("key"), "1");
  b.reset();
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(FileStore, AForkedChildIsNoWorkerThatLeaves) {
  const TempDirectory folder;
  const std::filesystem::path path = folder / "store";
  auto a = std::make_unique<FileStore>(path, 2);
  const int status = testing::status_when_forked([&] {
    a.reset();
    return 0;
  });
  EXPECT_EQ(status, 0);
  a.reset();
  EXPECT_TRUE(std::filesystem::exists(path));  // the second worker is still to come
}

TEST(FileStore, AProcessMayLeaveTheFolderThatARelativePathBeginsIn) {
  const TempDirectory folder;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  std::optional<FileStore> store(std::in_place, "store", 1);
  std::filesystem::current_path(before);
  EXPECT_TRUE(std::filesystem::exists(folder / "store"));
  store.reset();
  EXPECT_FALSE(std::filesystem::exists(folder / "store"));
  EXPECT_TRUE(throws<StoreError>([] { FileStore{""}; }, "cannot be opened"));
}

TEST(FileStore, TheFileOfALaterRunStays) {
  const TempDirectory folder;
  const std::filesystem::path path = folder / "store";
  std::optional<FileStore> earlier(std::in_place, path, 1);
  std::filesystem::remove(path);
  FileStore later(path, 2);
  later.set("key", "value");
  earlier.reset();
  EXPECT_EQ(FileStore(path, 2).get("key", kAtOnce), "value");
}

TEST(FileStore, AFileOfAnEarlierRunIsNoticed) {
  const TempDirectory folder;
  const std::filesystem::path path = folder / "store";
  {
    FileStore a(path, 3);
    FileStore b(path, 3);
    FileStore c(path, 3);
    std::filesystem::copy_file(path, folder / "left over");
  }
  EXPECT_TRUE(throws<StoreError>([&] { FileStore(folder / "left over", 3); }, "left over",
                                 "3 workers", "remove it"));
  EXPECT_TRUE(throws<ValueError>([&] { FileStore(path, -1); }, "-1"));
}

}  // namespace file_store_test
}  // namespace lockstep::distributed
