// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/non_copyable.hpp>

#include <atomic>
#include <cstddef>
#include <span>
#include <vector>

namespace lockstep::detail {

// What a Collectives can add up. Half precision is missing on purpose: the library sums it in f32
// and rounds once.
enum class SumType { i32, i64, f32, f64 };

// The part of the seam between the library and the hardware (backend.hpp) that concerns all devices
// of a set at once: a library that knows how they are connected. Where none serves a set, the
// caller uses copies and additions.
//
// A call names one stream for each device. It is work of all these streams: on each it comes after
// what was issued there before, and what is issued there later comes after it. The caller is not
// blocked, except by the first call for a set of devices.
//
// Threads: every member may be called from any thread. Objects live until the process ends.
class Collectives : NonCopyable {
 public:
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
    SumType type;
  };

  virtual ~Collectives() = default;

  // True if the calls below take these devices, which exist, in this order.
  virtual bool serves(std::span<const Device> devices) = 0;

  // Several of one kind together: streams[i] is a stream of device i, `root` one of the devices.
  virtual void broadcast(std::span<StreamState* const> streams, std::size_t root,
                         std::span<const Broadcast> broadcasts) = 0;
  virtual void sum(std::span<StreamState* const> streams, std::size_t root,
                   std::span<const Sum> sums) = 0;
};

// lockstep/nccl.hpp puts its collectives here before `main`.
inline constinit std::atomic<Collectives*> nccl_collectives{nullptr};

// The collectives that serve a set of devices; null if none do.
inline Collectives* collectives_for(std::span<const Device> devices) {
  Collectives* const collectives = nccl_collectives.load(std::memory_order_acquire);
  return collectives && collectives->serves(devices) ? collectives : nullptr;
}

}  // namespace lockstep::detail
