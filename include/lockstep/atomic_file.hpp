// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/non_copyable.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <system_error>
#include <utility>

namespace lockstep::detail {

// A file that appears under its name completely or not at all: its content is written to a
// temporary file in the same folder, which `commit` renames. Without a commit the temporary file is
// removed, and an existing file of that name is untouched.
//
// After `commit` the file survives a loss of power. It has the permissions of the file that it
// replaces, else those of a new file; a symbolic link of that name is itself replaced. A path that
// names no regular file, such as a pipe, or a descriptor of this process, such as /dev/stdout, is
// not replaced: `write` appends to it.
//
// **Threads and exceptions.** One thread at a time. Every failure is a DataError that names the
// file; but writing to a pipe without a reader ends a program that does not ignore SIGPIPE.
class AtomicFile : NonCopyable {
 public:
  explicit AtomicFile(std::filesystem::path path)
      : path_(std::move(path)),
        folder_(path_.has_parent_path() ? path_.parent_path() : std::filesystem::path(".")) {
    if (!path_.has_filename()) fail("the path has no file name", 0);
    if (opens_in_place()) return;
    open_temporary();
    struct stat status {};
    if (::lstat(path_.c_str(), &status) == 0 && S_ISREG(status.st_mode)) {
      // A failure is ignored, since not every file system has permissions.
      [[maybe_unused]] const int ignored = ::fchmod(descriptor_, status.st_mode & 0777U);
    }
  }
  ~AtomicFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
  }

  void write(std::span<const std::byte> bytes) {
    constexpr std::size_t kMost = std::size_t{1} << 30;  // for one call; the system cuts more
    while (!bytes.empty()) {
      const ssize_t put = ::write(descriptor_, bytes.data(), std::min(bytes.size(), kMost));
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) fail("cannot be written", errno);
      bytes = bytes.subspan(static_cast<std::size_t>(put));
    }
  }

  // Finishes writing and gives the file its name. If only the last step fails, which flushes the
  // folder to disk, the new file is in place but may not survive a loss of power.
  void commit() {
    const bool in_place = temporary_.empty();
    if (!in_place && ::fsync(descriptor_) != 0) fail("cannot be written to the disk", errno);
    if (::close(std::exchange(descriptor_, -1)) != 0) fail("cannot be written", errno);
    if (in_place) return;
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("cannot be replaced", errno);
    temporary_.clear();
    sync_folder();
  }

 private:
  // Opens the path for appending, and returns true, if it names something that is neither a file
  // nor a folder, or a descriptor of this process.
  bool opens_in_place() {
    struct stat status {};
    if (::stat(path_.c_str(), &status) != 0) return false;
    if (S_ISDIR(status.st_mode)) return false;
    if (S_ISREG(status.st_mode) && !names_descriptor()) return false;
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
    if (descriptor_ < 0) fail("cannot be opened", errno);
    return true;
  }

  // True if the path is, or leads to, a symbolic link in /proc, as /dev/stdout does.
  bool names_descriptor() const {
    namespace fs = std::filesystem;
    std::error_code error;
    fs::path link = folder_ / path_.filename();
    while (fs::is_symlink(link, error)) {
      const fs::path folder = fs::canonical(link.parent_path(), error);
      if (folder.native().starts_with("/proc/")) return true;
      link = folder / fs::read_symlink(link, error);
    }
    return false;
  }

  // Creates the temporary file with the permissions of a new file, which mkstemp would not.
  void open_temporary() {
    static std::atomic<std::uint64_t> count = 0;
    do {
      temporary_ = folder_ / (".lockstep-" + std::to_string(::getpid()) + "-" +
                              std::to_string(count.fetch_add(1)) + ".tmp");
      descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    } while (descriptor_ < 0 && errno == EEXIST);
    if (descriptor_ < 0) fail("cannot be created", errno);
  }

  void sync_folder() const {
    const int folder = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) fail("its folder cannot be opened", errno);
    const int error = ::fsync(folder) == 0 ? 0 : errno;
    ::close(folder);
    // EINVAL: the file system does not sync folders.
    if (error != 0 && error != EINVAL) fail("its folder cannot be written to the disk", error);
  }

  [[noreturn]] void fail(const char* what, int error) const {
    detail::fail<DataError>(path_.string(), ": ", what, error != 0 ? ": " : "",
                            error != 0 ? std::strerror(error) : "");
  }

  std::filesystem::path path_;
  std::filesystem::path folder_;
  std::filesystem::path temporary_;  // empty if there is none
  int descriptor_ = -1;
};

}  // namespace lockstep::detail
