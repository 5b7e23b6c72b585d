// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/collectives.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/parallel/comm/transfer.hpp>
#include <lockstep/profile/record_function.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <span>
#include <utility>
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
  FanOutRanks(Device source, const std::vector<Device>& devices) {
    if (!lockstep::detail::nccl_collectives.load(std::memory_order_acquire)) return;
    if (devices.size() < 2) return;
    std::vector<Device> ranks = devices;
    auto at = std::find(ranks.begin(), ranks.end(), source);
    if (at == ranks.end()) at = ranks.insert(at, source);
    root_ = static_cast<std::size_t>(at - ranks.begin());
    collectives_ = lockstep::detail::collectives_for(ranks);
    size_ = ranks.size();
  }

  // Adds the copies of a contiguous tensor, if the collective can make them.
  bool add(const Tensor& source, std::span<const FanOut> copies) {
    // Every rank takes part.
    if (!collectives_ || copies.size() + 1 != size_) return false;
    Collectives::Broadcast broadcast{{}, whole_of(source).width};
    if (broadcast.bytes == 0) return false;
    const auto root = static_cast<std::ptrdiff_t>(root_);
    if (streams_.empty()) {
      for (const FanOut& each : copies) streams_.push_back(&each.transfer->stream().state());
      streams_.insert(streams_.begin() + root, &copy_stream(source.device()).state());
    }
    for (const FanOut& each : copies) broadcast.data.push_back(each.copy->impl()->data());
    broadcast.data.insert(broadcast.data.begin() + root, source.impl()->data());
    sources_.push_back(source);
    broadcasts_.push_back(std::move(broadcast));
    return true;
  }

  // Issues what was added: on each device's copy stream, the root's after the source's current one.
  void issue() const {
    if (broadcasts_.empty()) return;
    const Stream reader(*streams_[root_]);
    reader.wait_stream(current_stream(reader.device()));
    for (const Tensor& source : sources_) source.record_stream(reader);
    copies_issued().fetch_add(broadcasts_.size() * (streams_.size() - 1),
                              std::memory_order_relaxed);
    collectives_->broadcast(streams_, root_, broadcasts_);
  }

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
inline void fan_out(std::span<const FanOut> copies, const std::vector<Device>& devices) {
  if (copies.empty()) return;
  const profile::RecordFunction range("broadcast");
  CopiesTogether alone;
  FanOutRanks together(copies[0].source->device(), devices);
  while (!copies.empty()) {
    const Tensor* const original = copies[0].source;
    std::size_t count = 1;
    while (count < copies.size() && copies[count].source == original) ++count;
    const lockstep::detail::Packed source(*original);
    const auto of_source = copies.first(count);
    copies = copies.subspan(count);
    if (together.add(source, of_source)) continue;
    for (const FanOut& each : of_source) {
      each.transfer->copy_out(*each.copy, source, whole_of(source), alone);
    }
  }
  alone.issue();
  together.issue();
}

}  // namespace lockstep::comm::detail
