// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/distributed/group/deadline.hpp>
#include <lockstep/distributed/socket/socket.hpp>
#include <lockstep/distributed/socket/socket_frame.hpp>
#include <lockstep/distributed/store/store.hpp>
#include <lockstep/distributed/store/store_values.hpp>
#include <lockstep/non_copyable.hpp>

#include <sys/file.h>

#include <chrono>
#include <filesystem>
#include <mutex>
#include <string>

namespace lockstep::distributed {

// A store for the processes of one machine: a file that all of them name, to which each change is
// appended.
//
// With `num_workers`, the same in all processes, the last worker that destroys its FileStore
// removes the file. If one more comes, that is a StoreError: most likely a run that was killed has
// left the file behind. With 0 nobody removes the file, and it must not exist before the first
// process comes.
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
  static constexpr std::chrono::milliseconds kLongestParting{1000};
  static constexpr std::size_t kMaxFrame = kMaxKey + kMaxValue + 64;

  // Holds the file's lock. Polls for it until the deadline, since a stopped process may hold it.
  class Lock : lockstep::detail::NonCopyable {
   public:
    Lock(const FileStore& store, int kind, const detail::Deadline& deadline);
    ~Lock() { ::flock(descriptor_, LOCK_UN); }

   private:
    int descriptor_;
  };

  LOCKSTEP_INLINE detail::StoreAnswer answer(detail::StoreCall call,
                                             const detail::Deadline& deadline) override;

  // Reads the changes since the last time. The caller holds the lock, so an incomplete change is
  // that of a process that has died; it stays for the next `append` to cut off.
  void refresh();

  void apply(std::string_view change);

  // Appends a change. The caller holds the lock and has read all changes. `values_` gets it from
  // the next `refresh`, as in every other process.
  void append(const detail::StoreCall& change);
  // Appends what the call changes, and returns its answer.
  detail::StoreAnswer append_change(detail::StoreCall call);

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
  std::size_t read_ = 0;  // the bytes of the file that are in `values_`
  int joined_ = 0;
  int left_ = 0;
  detail::StoreValues values_;
};

}  // namespace lockstep::distributed

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/store/impl/file_store.ipp>
#endif
