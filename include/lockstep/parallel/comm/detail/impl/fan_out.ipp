// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/backend/collectives.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/parallel/comm/detail/fan_out.hpp>
#include <lockstep/parallel/comm/detail/transfer.hpp>
#include <lockstep/profile/record_function.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace lockstep::comm::detail {

LOCKSTEP_INLINE FanOutCollective::FanOutCollective(Device source,
                                                   const std::vector<Device>& devices) {
  if (!lockstep::detail::nccl_collectives.load(std::memory_order_acquire)) return;
  if (devices.size() < 2) return;
  std::vector<Device> ranks = devices;
  auto at = lockstep::detail::find(ranks, source);
  if (at == ranks.end()) at = ranks.insert(at, source);
  root_ = static_cast<std::size_t>(at - ranks.begin());
  collectives_ = lockstep::detail::collectives_for(ranks);
  size_ = ranks.size();
}

LOCKSTEP_INLINE bool FanOutCollective::add(const Tensor& source,
                                           std::span<const FanOutCopy> copies) {
  // A collective needs a copy for every rank but the root.
  if (!collectives_ || copies.size() + 1 != size_) return false;
  Collectives::Broadcast broadcast{{}, whole_of(source).width};
  if (broadcast.bytes == 0) return false;
  const auto root = static_cast<std::ptrdiff_t>(root_);
  if (streams_.empty()) {
    for (const FanOutCopy& each : copies) streams_.push_back(&each.transfer->stream().state());
    streams_.insert(streams_.begin() + root, &copy_stream(source.device()).state());
  }
  for (const FanOutCopy& each : copies) broadcast.data.push_back(each.copy->impl()->data());
  broadcast.data.insert(broadcast.data.begin() + root, source.impl()->data());
  sources_.push_back(source);
  broadcasts_.push_back(std::move(broadcast));
  return true;
}

LOCKSTEP_INLINE void FanOutCollective::issue() const {
  if (broadcasts_.empty()) return;
  const Stream reader(*streams_[root_]);
  reader.wait_stream(current_stream(reader.device()));
  for (const Tensor& source : sources_) source.record_stream(reader);
  copies_issued().fetch_add(broadcasts_.size() * (streams_.size() - 1), std::memory_order_relaxed);
  collectives_->broadcast(streams_, root_, broadcasts_);
}

LOCKSTEP_INLINE void fan_out(std::span<const FanOutCopy> copies,
                             const std::vector<Device>& devices) {
  if (copies.empty()) return;
  const profile::RecordFunction range("broadcast");
  CopiesTogether alone;
  FanOutCollective together(copies[0].source->device(), devices);
  while (!copies.empty()) {
    const Tensor* const original = copies[0].source;
    std::size_t count = 1;
    while (count < copies.size() && copies[count].source == original) ++count;
    const lockstep::detail::Packed source(*original);
    const auto of_source = copies.first(count);
    copies = copies.subspan(count);
    if (together.add(source, of_source)) continue;
    for (const FanOutCopy& each : of_source) {
      each.transfer->copy_out(*each.copy, source, whole_of(source), alone);
    }
  }
  alone.issue();
  together.issue();
}

}  // namespace lockstep::comm::detail
