// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/distributed/group/call.hpp>
#include <lockstep/non_copyable.hpp>
#include <lockstep/tensor/dtype.hpp>

#include <atomic>
#include <cstddef>
#include <span>
#include <vector>

namespace lockstep::distributed::detail {

// What one rank of a collective on GPUs brings: a stream of its GPU, and memory there.
struct GpuPart {
  Stream stream;
  std::span<const void* const> inputs;
  std::span<void* const> outputs;
};

// A library that knows how the GPUs of a process are connected, and runs collectives on all of a
// set at once: those of DataParallel, and of a world of threads. Where none serves a set, the
// caller uses copies and additions.
//
// A call names one stream for each device. It is work of all these streams: on each it comes after
// what was issued there before, and what is issued there later comes after it. The caller is not
// blocked, except by the first call for a set of devices.
//
// Threads: every member may be called from any thread. Objects live until the process ends.
class GpuCollectives : lockstep::detail::NonCopyable {
 public:
  using StreamState = lockstep::detail::StreamState;

  // An address on each device. The bytes of the root are read, and written to all others.
  struct Broadcast {
    std::vector<void*> data;
    std::size_t bytes;
  };
  // Elements added up over all devices: inputs[i] is device i's, `total` lies on the root.
  struct Sum {
    std::vector<const void*> inputs;
    void* total;
    std::size_t count;
    Dtype dtype;
  };

  virtual ~GpuCollectives() = default;

  // True if the calls below take these devices, which exist, in this order.
  virtual bool serves(std::span<const Device> devices) = 0;

  // Several of one kind together: streams[i] is a stream of device i, `root` one of the devices.
  virtual void broadcast(std::span<StreamState* const> streams, std::size_t root,
                         std::span<const Broadcast> broadcasts) = 0;
  virtual void sum(std::span<StreamState* const> streams, std::size_t root,
                   std::span<const Sum> sums) = 0;

  // Any collective of ranks: parts[r] is rank r's, with the inputs and outputs that are listed at
  // Carrier.
  virtual void run(const Call& call, std::span<const GpuPart> parts) = 0;
};

// lockstep/nccl.hpp puts its collectives here before `main`.
inline constinit std::atomic<GpuCollectives*> nccl_collectives{nullptr};

// The collectives that serve a set of devices; null if none do.
inline GpuCollectives* collectives_for(std::span<const Device> devices) {
  GpuCollectives* const collectives = nccl_collectives.load(std::memory_order_acquire);
  return collectives && collectives->serves(devices) ? collectives : nullptr;
}

}  // namespace lockstep::distributed::detail
