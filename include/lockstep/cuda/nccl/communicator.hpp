// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/nccl/error.hpp>
#include <lockstep/cuda/runtime/cuda_stream.hpp>
#include <lockstep/cuda/runtime/device_guard.hpp>
#include <lockstep/cuda/runtime/logical_devices.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>
#include <lockstep/non_copyable.hpp>

#include <cstddef>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nccl.h>

namespace lockstep::cuda {

// Calls of NCCL that start together: one thread can make the calls of several GPUs only in such a
// group.
class NcclGroup : lockstep::detail::NonCopyable {
 public:
  // `communicator`: one of those that the calls are for.
  NcclGroup(std::span<const Device> devices, ncclComm_t communicator)
      : devices_(devices), communicator_(communicator) {
    check_nccl(ncclGroupStart(), "ncclGroupStart", devices_, nullptr);
  }
  // If an exception ends the group before `start`, the calls of some ranks may be missing, for
  // which the others would wait for ever, here or on their GPUs. NCCL starts no call of a group in
  // which it refuses one, so this makes a call that it refuses: there is no root -1.
  ~NcclGroup() {
    if (!open_) return;
    (void)ncclBroadcast(nullptr, nullptr, 0, ncclUint8, -1, communicator_, nullptr);
    (void)ncclGroupEnd();
  }

  // Starts the calls of the group. Throws an NcclError if NCCL refuses one.
  void start() {
    open_ = false;
    check_nccl(ncclGroupEnd(), "ncclGroupEnd", devices_, nullptr);
  }

 private:
  const std::span<const Device> devices_;
  const ncclComm_t communicator_;
  bool open_ = true;
};

// NCCL's communicators of a set of distinct GPUs: rank i is devices[i]. They live until the process
// ends, or are aborted by a failure.
//
// While NCCL is called one of these GPUs is current. NCCL makes its GPUs current in turn, and then
// the one that was before: if the process did not use that GPU, this would give it a context.
//
// Threads: one at a time.
class Communicator : lockstep::detail::NonCopyable {
 public:
  explicit Communicator(std::vector<Device> devices)
      : devices_(std::move(devices)), ranks_(devices_.size()), ends_(devices_.size()) {
    std::vector<int> gpus;
    for (const Device& device : devices_) gpus.push_back(gpu_of(device));
    const DeviceGuard guard(devices_[0]);
    check_nccl(ncclCommInitAll(ranks_.data(), static_cast<int>(gpus.size()), gpus.data()),
               "ncclCommInitAll", devices_, nullptr);
  }

  const std::vector<Device>& devices() const { return devices_; }

  // Calls issue(rank, its ncclComm_t) for every rank, as one group; `issue` checks its calls of
  // NCCL. After a failure every later call of `group` throws a DeviceError. If
  // ranks may have started, or an earlier group has met an error on a GPU, some may wait for others
  // for ever: then all communicators are aborted, and with them what earlier groups have not ended.
  // A call after a failure looks for such an error, too.
  template <class Issue>
  void group(const Issue& issue) {
    const DeviceGuard guard(devices_[0]);
    if (failure_) {
      check_after_failure();
      lockstep::detail::fail<DeviceError>("NCCL cannot be used on ", names_of(devices_),
                                          " any more, since it failed there before: ", *failure_);
    }
    bool started = true;
    try {
      check_earlier();
      started = false;
      NcclGroup calls(devices_, ranks_[0]);
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank) issue(rank, ranks_[rank]);
      started = true;
      calls.start();
    } catch (...) {
      failure_ = text_of(std::current_exception());
      if (started) abort(*failure_);
      throw;
    }
  }

  // Called after a group: the rank's calls have ended when `end` has happened, for which other
  // streams wait.
  void set_end(std::size_t rank, lockstep::detail::EventPtr end) { ends_[rank] = std::move(end); }

 private:
  void check_earlier() const {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      check_async(ranks_[rank], {&devices_[rank], 1});
    }
  }

  // Aborts if what was in flight when a call was refused has met an error since.
  void check_after_failure() noexcept {
    try {
      check_earlier();
    } catch (...) {
      abort(text_of(std::current_exception()));
    }
  }

  void abort(const std::string& cause) noexcept {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      // Noted before the abort, which ends the GPU's wait: a thread that waits for the GPU must not
      // miss it.
      const auto ended = [&] { return !ends_[rank] || ends_[rank]->query(); };
      if (!lockstep::detail::is_known(ended)) {
        note_lost_results(devices_[rank], [&] { return cause; });
      }
    }
    for (const ncclComm_t rank : ranks_) (void)ncclCommAbort(rank);
    ranks_.clear();
  }

  const std::vector<Device> devices_;
  std::vector<ncclComm_t> ranks_;                 // none once they have been aborted
  std::vector<lockstep::detail::EventPtr> ends_;  // of the last group, by rank; null: has ended
  std::optional<std::string> failure_;            // what it failed with
};

}  // namespace lockstep::cuda
