// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/distributed/group/deadline.hpp>
#include <lockstep/distributed/socket/socket.hpp>
#include <lockstep/distributed/socket/socket_frame.hpp>
#include <lockstep/distributed/store/file_store.hpp>
#include <lockstep/distributed/store/store.hpp>
#include <lockstep/distributed/store/store_values.hpp>
#include <lockstep/error.hpp>
#include <lockstep/non_copyable.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace lockstep::distributed::detail {

// A FileStore's file, opened by one process.
//
// Threads: any thread may call any member.
class StoreFile : lockstep::detail::NonCopyable {
 public:
  StoreFile(const std::filesystem::path& path, int num_workers, const Deadline& deadline)
      : path_(absolute(path)), num_workers_(num_workers) {
    check<ValueError>(num_workers >= 0, "FileStore: ", num_workers, " workers");
    while (true) {
      file_ = Descriptor(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
      if (!file_) fail("cannot be opened: ", std::strerror(errno));
      std::unique_lock guard(mutex_);
      const Lock lock(*this, LOCK_EX, deadline, guard);
      // The last worker of an earlier run may have removed it meanwhile.
      if (!is_at_path()) continue;
      refresh();
      if (joined_ == num_workers_ && num_workers_ > 0) {
        fail("is in use by ", num_workers_,
             " workers already, all that there should be: remove it if an earlier run has left it");
      }
      append({StoreRequest::join});
      return;
    }
  }

  std::string name() const { return "FileStore " + path_.string(); }

  // Nothing if the keys that the call waits for have no values by the deadline.
  std::optional<StoreAnswer> answer(const StoreCall& call, const Deadline& deadline) {
    for (Pause pause;; pause(deadline)) {
      {
        std::unique_lock guard(mutex_);
        if (call.changes() || size() != read_) {
          const Lock lock(*this, call.changes() ? LOCK_EX : LOCK_SH, deadline, guard);
          refresh();
          if (call.changes()) return append_change(call);
        }
        if (!call.waits() || values_.has_all(call.keys)) return values_.answer(call);
      }
      // Between two checks this process's other threads may take the mutex.
      if (deadline.passed()) return std::nullopt;
    }
  }

  // Notes that this process has finished with the file, and removes it if it is the last.
  void leave(const Deadline& deadline) {
    if (num_workers_ == 0) return;
    std::unique_lock guard(mutex_);
    const Lock lock(*this, LOCK_EX, deadline, guard);
    refresh();
    append({StoreRequest::leave});
    refresh();
    // The file may have been removed and another one made meanwhile.
    if (left_ == num_workers_ && is_at_path()) ::unlink(path_.c_str());
  }

 private:
  // The process may change its working directory later. If there is none now, or no path, opening
  // the file says so.
  static std::filesystem::path absolute(const std::filesystem::path& path) {
    std::error_code error;
    std::filesystem::path whole = std::filesystem::absolute(path, error);
    return error ? path : whole;
  }

  static constexpr std::size_t kMaxFrame = Store::kMaxKey + Store::kMaxValue + 64;

  // Holds the file's lock. Polls for it until the deadline, since a stopped process may hold it,
  // and releases `guard`, the mutex, between two checks, so that this process's other threads keep
  // to their own time limits.
  class Lock : lockstep::detail::NonCopyable {
   public:
    Lock(const StoreFile& store, int kind, const Deadline& deadline,
         std::unique_lock<std::mutex>& guard)
        : descriptor_(store.file_.get()) {
      Pause pause;
      while (::flock(descriptor_, kind | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR) {
          store.fail("cannot be locked: ", std::strerror(errno));
        }
        if (deadline.passed()) {
          store.fail("is locked by another process; waited for ", Seconds{deadline.timeout()});
        }
        guard.unlock();
        pause(deadline);
        guard.lock();
      }
    }
    ~Lock() { ::flock(descriptor_, LOCK_UN); }

   private:
    int descriptor_;
  };

  // Reads the changes since the last time. The caller holds the lock, so only a process that has
  // died can have left an incomplete change; the next `append` cuts it off.
  void refresh() {
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
      while (const auto change = next_frame(bytes, at, kMaxFrame)) apply(*change);
    } catch (const BadFrame& error) {
      fail("is not a store, or is damaged, near byte ", read_ + at, ": ", error.what());
    }
    // The first change of a store is a `join`: an incomplete one is shorter than this.
    if (read_ + at == 0 && end >= frame_of({StoreRequest::join}).size()) {
      fail("is not a store, or is damaged, near byte 0");
    }
    read_ += at;
  }

  void apply(std::string_view change) {
    FrameReader reader(change);
    const auto request = static_cast<StoreRequest>(reader.number<std::uint8_t>());
    const StoreCall call = read_call(request, reader);
    switch (request) {
      case StoreRequest::set:
      case StoreRequest::erase:
        values_.answer(call);
        break;
      case StoreRequest::join:
        ++joined_;
        break;
      case StoreRequest::leave:
        ++left_;
        break;
      default:
        lockstep::detail::fail<BadFrame>("an unknown change");
    }
  }

  // Appends a change. The caller holds the lock and has read all changes. The next `refresh`
  // applies it to `values_`, as in every other process.
  void append(const StoreCall& change) {
    if (size() != read_ && ::ftruncate(file_.get(), static_cast<off_t>(read_)) != 0) {
      fail("cannot be shortened: ", std::strerror(errno));
    }
    const std::string bytes = frame_of(change);
    for (std::size_t put = 0; put < bytes.size();) {
      const ssize_t more = ::pwrite(file_.get(), bytes.data() + put, bytes.size() - put,
                                    static_cast<off_t>(read_ + put));
      if (more < 0 && errno == EINTR) continue;
      if (more < 0) fail("cannot be written: ", std::strerror(errno));
      put += static_cast<std::size_t>(more);
    }
  }
  // Appends the call's change, if any, and returns its answer.
  StoreAnswer append_change(const StoreCall& call) {
    if (call.request == StoreRequest::add) {
      const std::int64_t total = values_.sum(call.keys[0], call.amount);
      append({StoreRequest::set, call.keys, std::to_string(total)});
      return {.number = total};
    }
    const bool erases = call.request == StoreRequest::erase;
    if (erases && !values_.has_all(call.keys)) return {};
    append(call);
    return {.number = erases};
  }

  std::size_t size() const {
    struct stat status {};
    if (::fstat(file_.get(), &status) != 0) fail("cannot be read: ", std::strerror(errno));
    if (!S_ISREG(status.st_mode)) fail("is not a regular file");
    return static_cast<std::size_t>(status.st_size);
  }
  bool is_at_path() const {
    struct stat opened {};
    struct stat named {};
    return ::fstat(file_.get(), &opened) == 0 && ::stat(path_.c_str(), &named) == 0 &&
           opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
  }

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    lockstep::detail::fail<StoreError>(name(), ' ', parts...);
  }

  const std::filesystem::path path_;
  const int num_workers_;

  std::mutex mutex_;  // guards all below, and is taken before the file's lock
  Descriptor file_;
  std::size_t read_ = 0;  // the bytes of the file that are in `values_`
  int joined_ = 0;
  int left_ = 0;
  StoreValues values_;
};

}  // namespace lockstep::distributed::detail

namespace lockstep::distributed {

LOCKSTEP_INLINE FileStore::FileStore(const std::filesystem::path& path, int num_workers,
                                     std::chrono::milliseconds timeout)
    : Store(timeout),
      file_(std::make_unique<detail::StoreFile>(path, num_workers, detail::Deadline(timeout))) {}

LOCKSTEP_INLINE FileStore::~FileStore() {
  if (lockstep::detail::forked()) return;  // only the parent is a worker
  constexpr std::chrono::milliseconds kLongestParting{1000};
  // If this fails, the file stays.
  (void)lockstep::detail::thrown_by(
      [&] { file_->leave(detail::Deadline(std::min(timeout(), kLongestParting))); });
}

LOCKSTEP_INLINE std::string FileStore::name() const { return file_->name(); }

LOCKSTEP_INLINE std::optional<detail::StoreAnswer> FileStore::answer(
    const detail::StoreCall& call, const detail::Deadline& deadline) {
  return file_->answer(call, deadline);
}

}  // namespace lockstep::distributed
