// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/nccl/error.hpp>
#include <lockstep/cuda/runtime/device_guard.hpp>
#include <lockstep/device/device.hpp>

#include <chrono>
#include <thread>
#include <utility>

#include <nccl.h>

// Communicators whose calls leave what waits for other ranks to threads of NCCL's own: connecting,
// splitting, a rank's first collective. The host asks how far they have come, and may give the
// communicator up meanwhile, by which these threads end.
namespace lockstep::cuda {

// Waits until what a communicator was last called for has been done: issued to its stream, if it is
// a collective or a message. Until then it takes no other call. Every call of a non-blocking
// communicator, or the end of its group, is followed by this.
//
// An NcclError, with the name of the `call`, if it has failed. While NCCL is not done, `check()` is
// called every so often, to throw when there is no use in waiting.
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

// One rank's communicator, on the GPU of `device`; returns when all ranks have come with this id.
template <class Check>
ncclComm_t connect_rank(int rank, int size, const ncclUniqueId& id, Device device,
                        const Check& check) {
  constexpr const char* kCall = "ncclCommInitRankConfig, which takes one rank a GPU,";
  const DeviceGuard guard(device);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t communicator = nullptr;
  try {
    const ncclResult_t begun = ncclCommInitRankConfig(&communicator, size, id, rank, &config);
    check_nccl(begun, kCall, {&device, 1}, nullptr);
    settle(communicator, kCall, device, check);
  } catch (...) {
    if (communicator) (void)ncclCommAbort(communicator);
    throw;
  }
  return communicator;
}

// Ends a communicator all of whose operations have run, and whose GPU is current; it is given up
// where that would wait for a rank that is gone, which is `check`'s to say.
template <class Check>
void destroy(ncclComm_t communicator, Device device, const Check& check) noexcept {
  try {
    check();
    check_nccl(ncclCommFinalize(communicator), "ncclCommFinalize", {&device, 1}, communicator);
    settle(communicator, "ncclCommFinalize", device, check);
  } catch (...) {
    (void)ncclCommAbort(communicator);
    return;
  }
  (void)ncclCommDestroy(communicator);
}

}  // namespace lockstep::cuda
