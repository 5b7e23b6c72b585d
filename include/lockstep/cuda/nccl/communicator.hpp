// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/device_guard.hpp>
#include <lockstep/cuda/logical_devices.hpp>
#include <lockstep/cuda/nccl/error.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>

#include <cstddef>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nccl.h>

namespace lockstep::cuda {

// Calls of NCCL that start together: one thread may speak for several GPUs only in such a group.
class NcclGroup {
 public:
  // `communicator`: one of those that the calls are for.
  NcclGroup(std::span<const Device> devices, ncclComm_t communicator)
      : devices_(devices), communicator_(communicator) {
    check_nccl(ncclGroupStart(), "ncclGroupStart", devices_, nullptr);
  }
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;
  // A group that an exception leaves may lack the calls of some ranks, for which the others would
  // wait for ever, here or on their GPUs. NCCL starts nothing of a group that has a call which it
  // refuses, so this makes one: there is no root -1.
  ~NcclGroup() {
    if (!open_) return;
    (void)ncclBroadcast(nullptr, nullptr, 0, ncclUint8, -1, communicator_, nullptr);
    (void)ncclGroupEnd();
  }

  void start() {
    open_ = false;
    check_nccl(ncclGroupEnd(), "ncclGroupEnd", devices_, nullptr);
  }

 private:
  const std::span<const Device> devices_;
  const ncclComm_t communicator_;
  bool open_ = true;
};

// NCCL's view of a set of distinct GPUs: rank i is devices[i]. Never destroyed, unless it fails.
//
// One of these GPUs is current while NCCL is called: it goes from one to the next and comes back,
// by which a GPU that the process does not use would get a context.
//
// Threads: one at a time.
class Communicator {
 public:
  explicit Communicator(std::vector<Device> devices)
      : devices_(std::move(devices)), ranks_(devices_.size()) {
    std::vector<int> gpus;
    for (const Device& device : devices_) gpus.push_back(gpu_of(device));
    const DeviceGuard guard(devices_[0]);
    check_nccl(ncclCommInitAll(ranks_.data(), static_cast<int>(gpus.size()), gpus.data()),
               "ncclCommInitAll", devices_, nullptr);
  }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const std::vector<Device>& devices() const { return devices_; }

  // Calls issue(rank, its ncclComm_t) for every rank, as one group; `check_call` is for what that
  // calls. After a failure, also one that an earlier group has met on a GPU, some ranks may have
  // started and wait for the others for ever, so all of them are aborted, and every later group is
  // an error.
  template <class Issue>
  void group(const Issue& issue) {
    lockstep::check<DeviceError>(failure_.empty(), "NCCL cannot be used on ", names_of(devices_),
                                 " any more, since it failed there before: ", failure_);
    try {
      const DeviceGuard guard(devices_[0]);
      check_earlier();
      NcclGroup calls(devices_, ranks_[0]);
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank) issue(rank, ranks_[rank]);
      calls.start();
    } catch (const std::exception& error) {
      failure_ = error.what();
      for (const ncclComm_t rank : ranks_) (void)ncclCommAbort(rank);
      throw;
    }
  }

  void check_call(ncclResult_t status, const char* call, std::size_t rank) const {
    check_nccl(status, call, devices_, ranks_[rank]);
  }

 private:
  void check_earlier() const {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      check_async(ranks_[rank], {&devices_[rank], 1});
    }
  }

  const std::vector<Device> devices_;
  std::vector<ncclComm_t> ranks_;
  std::string failure_;
};

}  // namespace lockstep::cuda
