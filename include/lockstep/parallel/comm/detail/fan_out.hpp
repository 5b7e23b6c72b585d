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

// What broadcast and the replicas' refreshing have in common: tensors of one device copied to
// several others.
namespace lockstep::comm::detail {

// One copy of a tensor, by one of several Transfers: contiguous, and as large as the source, whose
// strides are any. Whoever lists it keeps all three.
struct FanOut {
  const Tensor* source;
  const Tensor* copy;
  const Transfer* transfer;
};

// The ranks of one collective that copies from the source's device to the Transfers' streams.
class FanOutRanks {
 public:
  using Collectives = lockstep::detail::Collectives;

  // Empty unless `devices`, those of the broadcast, are several that a collective serves. The
  // source's own may be among them or not.
  FanOutRanks(Device source, const std::vector<Device>& devices);

  // Adds the copies of a contiguous tensor, if the collective can make them.
  bool add(const Tensor& source, std::span<const FanOut> copies);

  // Issues what was added: on each device's copy stream, the root's after the source's current one.
  void issue() const;

 private:
  Collectives* collectives_ = nullptr;
  std::size_t size_ = 0;
  std::size_t root_ = 0;
  std::vector<lockstep::detail::StreamState*> streams_;
  std::vector<Tensor> sources_;
  std::vector<Collectives::Broadcast> broadcasts_;
};

// Issues the copies of several tensors of one device, those of each together and in the order of
// the devices, to their Transfers' streams: as one collective where all `devices` of the broadcast
// are distinct GPUs and lockstep/nccl.hpp is there, each by itself elsewhere.
void fan_out(std::span<const FanOut> copies, const std::vector<Device>& devices);

}  // namespace lockstep::comm::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/comm/detail/impl/fan_out.ipp>
#endif
