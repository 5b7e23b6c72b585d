// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/atomic_file.hpp>
#include <lockstep/error.hpp>

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

LOCKSTEP_INLINE AtomicFile::AtomicFile(std::filesystem::path path)
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

LOCKSTEP_INLINE AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

LOCKSTEP_INLINE void AtomicFile::write(std::span<const std::byte> bytes) {
  constexpr std::size_t kMost = std::size_t{1} << 30;  // bytes a call: the system would cut more
  while (!bytes.empty()) {
    const ssize_t put = ::write(descriptor_, bytes.data(), std::min(bytes.size(), kMost));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail("cannot be written", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
}

LOCKSTEP_INLINE void AtomicFile::commit() {
  const bool in_place = temporary_.empty();
  if (!in_place && ::fsync(descriptor_) != 0) fail("cannot be written to the disk", errno);
  if (::close(std::exchange(descriptor_, -1)) != 0) fail("cannot be written", errno);
  if (in_place) return;
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("cannot be replaced", errno);
  temporary_.clear();
  sync_folder();
}

LOCKSTEP_INLINE bool AtomicFile::opens_in_place() {
  struct stat status {};
  if (::stat(path_.c_str(), &status) != 0) return false;
  if (S_ISDIR(status.st_mode)) return false;
  if (S_ISREG(status.st_mode) && !names_descriptor()) return false;
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (descriptor_ < 0) fail("cannot be opened", errno);
  return true;
}

LOCKSTEP_INLINE bool AtomicFile::names_descriptor() const {
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

LOCKSTEP_INLINE void AtomicFile::open_temporary() {
  static std::atomic<std::uint64_t> count = 0;
  do {
    temporary_ = folder_ / (".lockstep-" + std::to_string(::getpid()) + "-" +
                            std::to_string(count.fetch_add(1)) + ".tmp");
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (descriptor_ < 0 && errno == EEXIST);
  if (descriptor_ < 0) fail("cannot be created", errno);
}

LOCKSTEP_INLINE void AtomicFile::sync_folder() const {
  const int folder = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) fail("its folder cannot be opened", errno);
  const int error = ::fsync(folder) == 0 ? 0 : errno;
  ::close(folder);
  // EINVAL: the file system does not sync folders.
  if (error != 0 && error != EINVAL) fail("its folder cannot be written to the disk", error);
}

LOCKSTEP_INLINE void AtomicFile::fail(const char* what, int error) const {
  detail::fail<DataError>(path_.string(), ": ", what, error != 0 ? ": " : "",
                          error != 0 ? std::strerror(error) : "");
}

}  // namespace lockstep::detail
