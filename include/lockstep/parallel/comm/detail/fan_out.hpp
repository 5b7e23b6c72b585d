// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/collectives.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/parallel/comm/detail/transfer.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <span>
#include <vector>

// Copies tensors of one device to several others, for broadcast and for the replicas' cache.
namespace lockstep::comm::detail {

// One copy to make, by one of several Transfers: `copy` is contiguous and as large as `source`,
// which may be strided. The caller keeps all three alive.
struct FanOutCopy {
  const Tensor* source;
  const Tensor* copy;
  const Transfer* transfer;
};

// Collects copies from one device to several others, which NCCL (lockstep/nccl.hpp) then makes
// together, as one collective. Each device is a rank, the source's is the root.
class FanOutCollective {
 public:
  using Collectives = lockstep::detail::Collectives;

  // `devices`: those of the broadcast, the source's own among them or not. `add` takes no copies
  // unless a collective serves all of them.
  FanOutCollective(Device source, const std::vector<Device>& devices);

  // Adds the copies of a contiguous tensor and returns true; returns false if the collective cannot
  // make them.
  bool add(const Tensor& source, std::span<const FanOutCopy> copies);

  // Issues the collective, if copies were added, as work of each device's copy stream. The root's
  // copy stream waits for its current stream before.
  void issue() const;

 private:
  Collectives* collectives_ = nullptr;
  std::size_t size_ = 0;
  std::size_t root_ = 0;
  std::vector<lockstep::detail::StreamState*> streams_;
  std::vector<Tensor> sources_;
  std::vector<Collectives::Broadcast> broadcasts_;
};

// Issues the copies of several tensors of one device to their Transfers' streams. `copies` lists
// those of one tensor after another, each tensor's in the order of the devices; `devices` are those
// of the broadcast. One collective makes the copies where all devices are distinct GPUs and
// lockstep/nccl.hpp is there; elsewhere each is a copy of its own.
void fan_out(std::span<const FanOutCopy> copies, const std::vector<Device>& devices);

}  // namespace lockstep::comm::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/comm/detail/impl/fan_out.ipp>
#endif
