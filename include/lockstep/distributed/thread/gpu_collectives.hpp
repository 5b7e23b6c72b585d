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

// What one rank of a collective on GPUs brings: a stream of its GPU, and memory there.
struct GpuPart {
  Stream stream;
  std::span<const void* const> inputs;
  std::span<void* const> outputs;
};

// A collective on GPUs: parts[r] is rank r's, with the inputs and outputs that are listed at
// Carrier.
struct GpuCall {
  Call call;
  std::vector<GpuPart> parts;
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
  virtual ~GpuCollectives() = default;

  // True if `run` takes these devices, which exist, in this order.
  virtual bool serves(std::span<const Device> devices) = 0;

  // Makes some collectives, at least one, together. They are of the same streams.
  virtual void run(std::span<const GpuCall> calls) = 0;
};

// lockstep/nccl.hpp puts its collectives here before `main`.
inline constinit std::atomic<GpuCollectives*> nccl_collectives{nullptr};

// The collectives that serve a set of devices; null if none do.
inline GpuCollectives* collectives_for(std::span<const Device> devices) {
  GpuCollectives* const collectives = nccl_collectives.load(std::memory_order_acquire);
  return collectives && collectives->serves(devices) ? collectives : nullptr;
}

}  // namespace lockstep::distributed::detail
