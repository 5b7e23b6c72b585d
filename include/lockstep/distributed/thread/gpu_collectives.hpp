// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/distributed/group/call.hpp>
#include <lockstep/non_copyable.hpp>

#include <atomic>
#include <span>
#include <vector>

namespace lockstep::distributed::detail {

// One rank's part of a collective on GPUs: a stream of its GPU, and memory there.
struct GpuPart {
  Stream stream;
  std::span<const void* const> inputs;
  std::span<void* const> outputs;
};

// A collective on GPUs: parts[r] is rank r's, with the inputs and outputs that Carrier lists.
struct GpuCall {
  Call call;
  std::vector<GpuPart> parts;
};

// A library that runs collectives on all GPUs of a set at once, knowing how they are connected.
// DataParallel and worlds of threads use it, and fall back to copies and additions where it does
// not serve a set.
//
// A call has one stream for each device and is work of all of them, in stream order. It does not
// block the caller, except the first one for a set of devices.
//
// Threads: every member may be called from any thread. Objects live until the process ends.
class GpuCollectives : lockstep::detail::NonCopyable {
 public:
  virtual ~GpuCollectives() = default;

  // True if `run` takes these devices, which exist, in this order.
  virtual bool serves(std::span<const Device> devices) = 0;

  // Issues one or more collectives together, all on the same streams.
  virtual void run(std::span<const GpuCall> calls) = 0;
};

// lockstep/nccl.hpp stores its collectives here before `main`.
inline constinit std::atomic<GpuCollectives*> nccl_collectives{nullptr};

// The collectives that serve a set of devices; null if none do.
inline GpuCollectives* collectives_for(std::span<const Device> devices) {
  GpuCollectives* const collectives = nccl_collectives.load(std::memory_order_acquire);
  return collectives && collectives->serves(devices) ? collectives : nullptr;
}

}  // namespace lockstep::distributed::detail
