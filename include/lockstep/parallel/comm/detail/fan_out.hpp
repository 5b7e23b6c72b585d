// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/distributed/group/call.hpp>
#include <lockstep/distributed/thread/gpu_collectives.hpp>
#include <lockstep/non_copyable.hpp>
#include <lockstep/parallel/comm/detail/transfer.hpp>
#include <lockstep/profile/record_function.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <list>
#include <span>
#include <vector>

// Copies tensors of one device to several others, for broadcast and for the replicas' cache.
namespace lockstep::comm::detail {

// One copy to make by a Transfer: `copy` is contiguous and as large as `source`, which may be
// strided. The caller keeps all three alive.
struct FanOutCopy {
  const Tensor* source;
  const Tensor* copy;
  const Transfer* transfer;
};

// The first place of a device in a list, or the list's length.
inline std::size_t first_place_of(Device device, const std::vector<Device>& devices) {
  return static_cast<std::size_t>(lockstep::detail::find(devices, device) - devices.begin());
}

// Collects copies from one device to others, which NCCL (lockstep/nccl.hpp) then makes in one
// collective. Each device is a rank; the source's is the root.
class FanOutCollective : lockstep::detail::NonCopyable {
 public:
  // `devices` are those of the broadcast, with or without the source's own. Without a collective
  // for them, `add` takes nothing.
  FanOutCollective(Device source, const std::vector<Device>& devices) {
    if (!distributed::detail::nccl_collectives.load(std::memory_order_acquire)) return;
    if (devices.size() < 2) return;
    std::vector<Device> ranks = devices;
    root_ = first_place_of(source, ranks);
    if (root_ == ranks.size()) ranks.push_back(source);
    collectives_ = distributed::detail::collectives_for(ranks);
    size_ = ranks.size();
  }

  // Adds the copies of a contiguous tensor and returns true, or returns false if the collective
  // cannot make them.
  bool add(const Tensor& source, std::span<const FanOutCopy> copies) {
    // A collective needs a copy for every rank but the root.
    if (!collectives_ || copies.size() + 1 != size_) return false;
    // NCCL may read from other GPUs, which another allocator may not have given access.
    if (source.impl()->storage->is_lent()) return false;
    const std::size_t bytes = whole_of(source).width;
    if (bytes == 0) return false;
    distributed::detail::GpuCall& call = calls_.emplace_back();
    call.call = {.collective = distributed::detail::Collective::broadcast,
                 .root = static_cast<int>(root_),
                 .count = bytes};
    for (const FanOutCopy& each : copies) {
      void* const& to = memory_.emplace_back(each.copy->impl()->data());
      call.parts.push_back({each.transfer->stream(), {}, {&to, 1}});
    }
    void* const& from = memory_.emplace_back(source.impl()->data());
    call.parts.insert(call.parts.begin() + static_cast<std::ptrdiff_t>(root_),
                      {copy_stream(source.device()), {&from, 1}, {}});
    sources_.push_back(source);
    return true;
  }

  // Issues the collective, if copies were added, on each device's copy stream. The root's copy
  // stream first waits for its current stream.
  void issue() const {
    if (calls_.empty()) return;
    const Stream& reader = calls_[0].parts[root_].stream;
    reader.wait_stream(current_stream(reader.device()));
    for (const Tensor& source : sources_) source.record_stream(reader);
    copies_issued().fetch_add(calls_.size() * (size_ - 1), std::memory_order_relaxed);
    collectives_->run(calls_);
  }

 private:
  distributed::detail::GpuCollectives* collectives_ = nullptr;
  std::size_t size_ = 0;
  std::size_t root_ = 0;
  std::vector<Tensor> sources_;
  std::list<void*> memory_;  // what the calls point to
  std::vector<distributed::detail::GpuCall> calls_;
};

// Issues the copies of several tensors of one device on their Transfers' streams. `copies` lists
// each tensor's copies together, in the order of the broadcast's `devices`. If all devices are
// distinct GPUs and lockstep/nccl.hpp is included, one collective makes the copies; otherwise each
// is a copy of its own.
inline void fan_out(std::span<const FanOutCopy> copies, const std::vector<Device>& devices) {
  if (copies.empty()) return;
  const profile::RecordFunction range("broadcast");
  FanOutCollective collective(copies[0].source->device(), devices);
  CopiesTogether rest;
  while (!copies.empty()) {
    const Tensor* const original = copies[0].source;
    std::size_t count = 1;
    while (count < copies.size() && copies[count].source == original) ++count;
    const lockstep::detail::Packed source(*original);
    const auto of_source = copies.first(count);
    copies = copies.subspan(count);
    if (collective.add(source, of_source)) continue;
    for (const FanOutCopy& each : of_source) {
      each.transfer->copy(*each.copy, source, whole_of(source), rest);
    }
  }
  rest.issue();
  collective.issue();
}

}  // namespace lockstep::comm::detail
