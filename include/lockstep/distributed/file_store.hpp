// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/socket_frame.hpp>
#include <lockstep/distributed/store.hpp>
#include <lockstep/distributed/store_values.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <string>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace lockstep::distributed {

// A store for the processes of one machine: a file that all of them name, which lists every change.
//
// With a number of workers, which is then the same everywhere, the last of them that destroys its
// FileStore removes the file; and where more of them come than there are, a file of an earlier run
// has been left over (one of its processes was killed), which is said. With none, the file stays,
// and must not be there before.
//
// A process that is killed at any moment leaves the store usable for the others: the system takes
// its lock away, and a change that it had not written wholly is dropped.
//
// **Torch counterpart.** torch.distributed.FileStore.
// **Threads and exceptions.** As Store. Each process makes its own. The lock is flock's, so the
// file may be on NFS where that has been set up for locks.
class FileStore final : public Store {
 public:
  explicit FileStore(std::filesystem::path path, int num_workers = 0,
                     std::chrono::milliseconds timeout = kDefaultTimeout)
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
      append(detail::FrameWriter(Change::join));
      return;
    }
  }

  ~FileStore() override {
    if (num_workers_ == 0) return;
    try {
      const Lock lock(*this, LOCK_EX, detail::Deadline(std::min(timeout(), kLongestParting)));
      refresh();
      append(detail::FrameWriter(Change::leave));
      refresh();
      if (left_ == num_workers_) ::unlink(path_.c_str());
    } catch (const std::exception&) {
      // The file stays.
    }
  }

  std::string name() const override { return "FileStore " + path_.string(); }

 private:
  enum class Change : std::uint8_t { set, erase, join, leave };

  static constexpr std::chrono::milliseconds kLongestParting{1000};
  static constexpr std::size_t kMaxFrame = kMaxKey + kMaxValue + 64;

  // Waits for the lock in steps: who holds it may have been stopped.
  class Lock {
   public:
    Lock(const FileStore& store, int kind, const detail::Deadline& deadline)
        : descriptor_(store.file_.get()) {
      detail::Pause pause;
      while (::flock(descriptor_, kind | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR) {
          store.fail("cannot be locked: ", std::strerror(errno));
        }
        if (deadline.passed()) {
          store.fail("is locked by another process; waited for ",
                     detail::Seconds{deadline.timeout()});
        }
        pause(deadline);
      }
    }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    ~Lock() { ::flock(descriptor_, LOCK_UN); }

   private:
    int descriptor_;
  };

  void do_set(const std::string& key, const std::string& value,
              const detail::Deadline& deadline) override {
    const std::lock_guard guard(mutex_);
    const Lock lock(*this, LOCK_EX, deadline);
    refresh();
    append(detail::FrameWriter(Change::set).text(key).text(value));
  }
  std::string do_get(const std::string& key, const detail::Deadline& deadline) override {
    std::string value;
    await({&key, 1}, deadline, [&] { value = *values_.find(key); });
    return value;
  }
  std::int64_t do_add(const std::string& key, std::int64_t amount,
                      const detail::Deadline& deadline) override {
    const std::lock_guard guard(mutex_);
    const Lock lock(*this, LOCK_EX, deadline);
    refresh();
    const std::int64_t total = values_.sum(key, amount);
    append(detail::FrameWriter(Change::set).text(key).text(std::to_string(total)));
    return total;
  }
  void do_wait(std::span<const std::string> keys, const detail::Deadline& deadline) override {
    await(keys, deadline, [] {});
  }
  bool do_check(std::span<const std::string> keys, const detail::Deadline& deadline) override {
    const std::lock_guard guard(mutex_);
    look(deadline);
    return values_.has_all(keys);
  }
  bool do_delete(const std::string& key, const detail::Deadline& deadline) override {
    const std::lock_guard guard(mutex_);
    const Lock lock(*this, LOCK_EX, deadline);
    refresh();
    if (!values_.find(key)) return false;
    append(detail::FrameWriter(Change::erase).text(key));
    return true;
  }
  std::int64_t do_num_keys(const detail::Deadline& deadline) override {
    const std::lock_guard guard(mutex_);
    look(deadline);
    return values_.size();
  }

  // Calls `then`, with the mutex held, once all keys are there. The mutex is free in between, for
  // this process's other threads.
  template <class Then>
  void await(std::span<const std::string> keys, const detail::Deadline& deadline, Then then) {
    for (detail::Pause pause;; pause(deadline)) {
      {
        const std::lock_guard guard(mutex_);
        look(deadline);
        if (values_.has_all(keys)) return then();
      }
      if (deadline.passed()) fail_late(keys, deadline);
    }
  }

  // Reads what is new, if anything is.
  void look(const detail::Deadline& deadline) {
    if (size() == read_) return;
    const Lock lock(*this, LOCK_SH, deadline);
    refresh();
  }

  // Reads the changes since the last time. With the lock held, so one that has not wholly been
  // written is a dead process's; it is left where it is, for the next that writes.
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
      while (const auto change = detail::next_frame(bytes, at, kMaxFrame)) apply(*change);
    } catch (const detail::BadFrame& error) {
      fail("is no store, or is damaged, near byte ", read_ + at, ": ", error.what());
    }
    read_ += at;
  }

  void apply(std::string_view change) {
    detail::FrameReader reader(change);
    switch (static_cast<Change>(reader.number<std::uint8_t>())) {
      case Change::set: {
        const std::string key = reader.text();
        values_.set(key, reader.text());
        break;
      }
      case Change::erase:
        values_.erase(reader.text());
        break;
      case Change::join:
        ++joined_;
        break;
      case Change::leave:
        ++left_;
        break;
      default:
        lockstep::detail::fail<detail::BadFrame>("an unknown change");
    }
    reader.end();
  }

  // With the lock held, and all that is there read. It is read back by the next `refresh`, as by
  // every other process.
  void append(detail::FrameWriter change) {
    if (size() != read_ && ::ftruncate(file_.get(), static_cast<off_t>(read_)) != 0) {
      fail("cannot be shortened: ", std::strerror(errno));
    }
    const std::string bytes = change.take();
    for (std::size_t put = 0; put < bytes.size();) {
      const ssize_t more = ::pwrite(file_.get(), bytes.data() + put, bytes.size() - put,
                                    static_cast<off_t>(read_ + put));
      if (more < 0 && errno == EINTR) continue;
      if (more < 0) fail("cannot be written: ", std::strerror(errno));
      put += static_cast<std::size_t>(more);
    }
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
  detail::Descriptor file_;
  std::size_t read_ = 0;  // the bytes of the file that `values_` knows
  int joined_ = 0;
  int left_ = 0;
  detail::StoreValues values_;
};

}  // namespace lockstep::distributed
