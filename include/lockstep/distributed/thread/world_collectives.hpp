// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/collectives.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/distributed/group/call.hpp>

#include <atomic>
#include <span>

namespace lockstep::distributed::detail {

// What one rank of a collective on GPUs brings: a stream of its GPU, and memory there.
struct GpuPart {
  Stream stream;
  std::span<const void* const> inputs;
  std::span<void* const> outputs;
};

// A library that runs the collectives of a world of threads on GPUs for all ranks at once, beside
// those of DataParallel. Without one the ranks copy and add.
class WorldCollectives : public lockstep::detail::Collectives {
 public:
  // Issues `call` as work of all streams: parts[r] is rank r's, with the inputs and outputs that
  // are listed at Carrier.
  virtual void run(const Call& call, std::span<const GpuPart> parts) = 0;
};

// lockstep/nccl.hpp puts its own here before `main`.
inline constinit std::atomic<WorldCollectives*> nccl_world{nullptr};

// The collectives that serve the devices, or null.
inline WorldCollectives* world_collectives_for(std::span<const Device> devices) {
  WorldCollectives* const collectives = nccl_world.load(std::memory_order_acquire);
  return collectives && collectives->serves(devices) ? collectives : nullptr;
}

}  // namespace lockstep::distributed::detail
