// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/distributed/store/store.hpp>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace lockstep::distributed {

namespace detail {
class StoreFile;
}  // namespace detail

// A store for the processes of one machine: a file that all of them name. Each change is appended
// to it.
//
// With `num_workers`, the same in all processes, the last worker that destroys its FileStore
// removes the file, and one worker too many is a StoreError: most likely a run that was killed has
// left the file behind. With 0 nobody removes the file, and it must not exist before the first
// process opens it.
//
// A process may be killed at any moment and leaves the store usable: the system releases its lock,
// and a change that it had not written completely is dropped.
//
// **Torch counterpart.** torch.distributed.FileStore.
// **Threads and exceptions.** As Store; a ValueError for a negative `num_workers`. Each process
// makes its own. The lock is flock's, so on NFS the mount must support locks.
class FileStore final : public Store {
 public:
  explicit FileStore(const std::filesystem::path& path, int num_workers = 0,
                     std::chrono::milliseconds timeout = kDefaultTimeout);

  LOCKSTEP_INLINE ~FileStore() override;

  LOCKSTEP_INLINE std::string name() const override;

 private:
  LOCKSTEP_INLINE std::optional<detail::StoreAnswer> answer(
      const detail::StoreCall& call, const detail::Deadline& deadline) override;

  const std::unique_ptr<detail::StoreFile> file_;
};

}  // namespace lockstep::distributed

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/store/impl/file_store.ipp>
#endif
