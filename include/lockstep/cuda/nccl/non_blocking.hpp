// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/nccl/error.hpp>
#include <lockstep/cuda/runtime/device_guard.hpp>
#include <lockstep/device/device.hpp>

#include <chrono>
#include <memory>
#include <thread>

#include <nccl.h>

// Non-blocking communicators: where a call has to wait for other ranks (connecting, splitting, a
// rank's first collective), NCCL's own threads wait. The caller asks whether they are done, and may
// abort the communicator meanwhile, which ends them.
namespace lockstep::cuda {

struct AbortCommunicator {
  void operator()(ncclComm_t communicator) const noexcept { (void)ncclCommAbort(communicator); }
};
// Aborts its communicator at the end.
using OwnedCommunicator = std::unique_ptr<ncclComm, AbortCommunicator>;

// Waits until the communicator's last call has been done: a collective or a message has been issued
// to its stream then. Follows every call of a non-blocking communicator, or the end of the calls'
// group: until then the communicator takes no other call.
//
// Throws an NcclError that names `call` if that has failed. Meanwhile calls `check()` again and
// again, which throws if waiting is of no use.
template <class Check>
void settle(ncclComm_t communicator, const char* call, Device device, const Check& check) {
  constexpr int kYields = 100;  // a call that waits for nobody takes some microseconds
  for (int looks = 0;; ++looks) {
    ncclResult_t met = ncclSuccess;
    check_nccl(ncclCommGetAsyncError(communicator, &met), "ncclCommGetAsyncError", {&device, 1},
               communicator);
    if (met != ncclInProgress) return check_nccl(met, call, {&device, 1}, communicator);
    check();
    if (looks < kYields) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

// Makes one rank's communicator, on the GPU of `device`; returns when all ranks have called this
// with the same id.
template <class Check>
OwnedCommunicator connect_rank(int rank, int size, const ncclUniqueId& id, Device device,
                               const Check& check) {
  constexpr const char* kCall = "ncclCommInitRankConfig, which takes one rank a GPU,";
  const DeviceGuard guard(device);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t made = nullptr;
  const ncclResult_t begun = ncclCommInitRankConfig(&made, size, id, rank, &config);
  OwnedCommunicator communicator(made);
  check_nccl(begun, kCall, {&device, 1}, nullptr);
  settle(made, kCall, device, check);
  return communicator;
}

// Ends a communicator all of whose operations have run, and whose GPU is current. If `check`
// throws, since a rank is gone for which that would wait, or NCCL fails, aborts the communicator.
template <class Check>
void destroy(OwnedCommunicator communicator, Device device, const Check& check) noexcept {
  ncclComm_t const comm = communicator.get();
  try {
    check();
    check_nccl(ncclCommFinalize(comm), "ncclCommFinalize", {&device, 1}, comm);
    settle(comm, "ncclCommFinalize", device, check);
  } catch (...) {
    return;
  }
  (void)ncclCommDestroy(communicator.release());
}

}  // namespace lockstep::cuda
