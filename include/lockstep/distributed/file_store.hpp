// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/distributed/deadline.hpp>
#include <lockstep/distributed/socket.hpp>
#include <lockstep/distributed/socket_frame.hpp>
#include <lockstep/distributed/store.hpp>
#include <lockstep/distributed/store_values.hpp>

#include <sys/file.h>

#include <chrono>
#include <filesystem>
#include <mutex>
#include <string>

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
                     std::chrono::milliseconds timeout = kDefaultTimeout);

  LOCKSTEP_INLINE ~FileStore() override;

  std::string name() const override { return "FileStore " + path_.string(); }

 private:
  enum class Change : std::uint8_t { set, erase, join, leave };

  static constexpr std::chrono::milliseconds kLongestParting{1000};
  static constexpr std::size_t kMaxFrame = kMaxKey + kMaxValue + 64;

  // Waits for the lock in steps: who holds it may have been stopped.
  class Lock {
   public:
    Lock(const FileStore& store, int kind, const detail::Deadline& deadline);
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    ~Lock() { ::flock(descriptor_, LOCK_UN); }

   private:
    int descriptor_;
  };

  LOCKSTEP_INLINE void do_set(const std::string& key, const std::string& value,
                              const detail::Deadline& deadline) override;
  LOCKSTEP_INLINE std::string do_get(const std::string& key,
                                     const detail::Deadline& deadline) override;
  LOCKSTEP_INLINE std::int64_t do_add(const std::string& key, std::int64_t amount,
                                      const detail::Deadline& deadline) override;
  LOCKSTEP_INLINE void do_wait(std::span<const std::string> keys,
                               const detail::Deadline& deadline) override;
  LOCKSTEP_INLINE bool do_check(std::span<const std::string> keys,
                                const detail::Deadline& deadline) override;
  LOCKSTEP_INLINE bool do_delete(const std::string& key, const detail::Deadline& deadline) override;
  LOCKSTEP_INLINE std::int64_t do_num_keys(const detail::Deadline& deadline) override;

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
  void look(const detail::Deadline& deadline);

  // Reads the changes since the last time. With the lock held, so one that has not wholly been
  // written is a dead process's; it is left where it is, for the next that writes.
  void refresh();

  void apply(std::string_view change);

  // With the lock held, and all that is there read. It is read back by the next `refresh`, as by
  // every other process.
  void append(detail::FrameWriter change);

  std::size_t size() const;
  bool is_at_path() const;

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

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/file_store.ipp>
#endif
