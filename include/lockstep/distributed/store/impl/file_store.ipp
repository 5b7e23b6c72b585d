// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/socket/socket_frame.hpp>
#include <lockstep/distributed/store/file_store.hpp>
#include <lockstep/distributed/store/store.hpp>
#include <lockstep/error.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <string>
#include <utility>

namespace lockstep::distributed {

LOCKSTEP_INLINE FileStore::FileStore(std::filesystem::path path, int num_workers,
                                     std::chrono::milliseconds timeout)
    : Store(timeout), path_(std::move(path)), num_workers_(num_workers) {
  lockstep::check<ValueError>(num_workers >= 0, "FileStore: ", num_workers, " workers");
  const detail::Deadline deadline(timeout);
  while (true) {
    file_ = detail::Descriptor(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!file_) fail("cannot be opened: ", std::strerror(errno));
    const Lock lock(*this, LOCK_EX, deadline);
    // The last worker of an earlier run may have removed it since.
    if (!is_at_path()) continue;
    refresh();
    if (joined_ == num_workers_ && num_workers_ > 0) {
      fail("is in use by ", num_workers_,
           " workers already, all that there should be: remove it if an earlier run has left it");
    }
    append({detail::StoreRequest::join});
    return;
  }
}

LOCKSTEP_INLINE FileStore::~FileStore() {
  if (num_workers_ == 0) return;
  try {
    const Lock lock(*this, LOCK_EX, detail::Deadline(std::min(timeout(), kLongestParting)));
    refresh();
    append({detail::StoreRequest::leave});
    refresh();
    if (left_ == num_workers_) ::unlink(path_.c_str());
  } catch (const std::exception&) {
    // The file stays.
  }
}

LOCKSTEP_INLINE FileStore::Lock::Lock(const FileStore& store, int kind,
                                      const detail::Deadline& deadline)
    : descriptor_(store.file_.get()) {
  detail::Pause pause;
  while (::flock(descriptor_, kind | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      store.fail("cannot be locked: ", std::strerror(errno));
    }
    if (deadline.passed()) {
      store.fail("is locked by another process; waited for ", detail::Seconds{deadline.timeout()});
    }
    pause(deadline);
  }
}

LOCKSTEP_INLINE detail::StoreAnswer FileStore::answer(detail::StoreCall call,
                                                      const detail::Deadline& deadline) {
  for (detail::Pause pause;; pause(deadline)) {
    {
      const std::lock_guard guard(mutex_);
      if (call.changes() || size() != read_) {
        const Lock lock(*this, call.changes() ? LOCK_EX : LOCK_SH, deadline);
        refresh();
        if (call.changes()) return append_change(std::move(call));
      }
      if (!call.waits() || values_.has_all(call.keys)) return values_.answer(call);
    }
    // Between two looks the mutex is free, for this process's other threads.
    if (deadline.passed()) fail_late(call.keys, deadline);
  }
}

LOCKSTEP_INLINE void FileStore::refresh() {
  const std::size_t end = size();
  if (end < read_) fail("has become shorter: ", end, " bytes, where ", read_, " were known");
  std::string bytes(end - read_, '\0');
  std::size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t got = ::pread(file_.get(), bytes.data() + filled, bytes.size() - filled,
                                static_cast<off_t>(read_ + filled));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("cannot be read: ", std::strerror(errno));
    if (got == 0) fail("has become shorter while it was read");
    filled += static_cast<std::size_t>(got);
  }
  std::size_t at = 0;
  try {
    while (const auto change = detail::next_frame(bytes, at, kMaxFrame)) apply(*change);
  } catch (const detail::BadFrame& error) {
    fail("is no store, or is damaged, near byte ", read_ + at, ": ", error.what());
  }
  read_ += at;
}

LOCKSTEP_INLINE void FileStore::apply(std::string_view change) {
  detail::FrameReader reader(change);
  const auto request = static_cast<detail::StoreRequest>(reader.number<std::uint8_t>());
  const detail::StoreCall call = detail::read_call(request, reader);
  switch (request) {
    case detail::StoreRequest::set:
    case detail::StoreRequest::erase:
      values_.answer(call);
      break;
    case detail::StoreRequest::join:
      ++joined_;
      break;
    case detail::StoreRequest::leave:
      ++left_;
      break;
    default:
      lockstep::detail::fail<detail::BadFrame>("an unknown change");
  }
}

LOCKSTEP_INLINE void FileStore::append(const detail::StoreCall& change) {
  if (size() != read_ && ::ftruncate(file_.get(), static_cast<off_t>(read_)) != 0) {
    fail("cannot be shortened: ", std::strerror(errno));
  }
  const std::string bytes = detail::frame_of(change);
  for (std::size_t put = 0; put < bytes.size();) {
    const ssize_t more = ::pwrite(file_.get(), bytes.data() + put, bytes.size() - put,
                                  static_cast<off_t>(read_ + put));
    if (more < 0 && errno == EINTR) continue;
    if (more < 0) fail("cannot be written: ", std::strerror(errno));
    put += static_cast<std::size_t>(more);
  }
}

LOCKSTEP_INLINE detail::StoreAnswer FileStore::append_change(detail::StoreCall call) {
  detail::StoreAnswer answer;
  if (call.request == detail::StoreRequest::erase) {
    if (!values_.has_all(call.keys)) return answer;
    answer.number = 1;
  } else if (call.request == detail::StoreRequest::add) {
    answer.number = values_.sum(call.keys[0], call.amount);
    call = {detail::StoreRequest::set, std::move(call.keys), std::to_string(answer.number)};
  }
  append(call);
  return answer;
}

LOCKSTEP_INLINE std::size_t FileStore::size() const {
  struct stat status {};
  if (::fstat(file_.get(), &status) != 0) fail("cannot be read: ", std::strerror(errno));
  if (!S_ISREG(status.st_mode)) fail("is not a regular file");
  return static_cast<std::size_t>(status.st_size);
}

LOCKSTEP_INLINE bool FileStore::is_at_path() const {
  struct stat opened {};
  struct stat named {};
  return ::fstat(file_.get(), &opened) == 0 && ::stat(path_.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

}  // namespace lockstep::distributed
