// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/collectives.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/parallel/comm/transfer.hpp>
#include <lockstep/profile/record_function.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

// What broadcast and the replicas' refreshing have in common: tensors of one device copied to
// several others.
namespace lockstep::comm::detail {

// A contiguous tensor and its copies: one for each Transfer, contiguous and just as large, or
// undefined where none is wanted.
struct FanOut {
  Tensor source;
  std::vector<Tensor> copies;
};

// The ranks of one collective that copies from the source's device to the Transfers' streams.
class FanOutRanks {
 public:
  using Collectives = lockstep::detail::Collectives;

  // Empty unless `devices`, those of the broadcast, are several that a collective serves. The
  // source's own may be among them or not.
  FanOutRanks(Device source, const std::vector<Device>& devices,
              const std::vector<Transfer>& transfers) {
    if (devices.size() < 2 || transfers.empty()) return;
    std::vector<Device> ranks = devices;
    auto at = std::find(ranks.begin(), ranks.end(), source);
    if (at == ranks.end()) at = ranks.insert(at, source);
    root_ = static_cast<std::size_t>(at - ranks.begin());
    collectives_ = lockstep::detail::collectives_for(ranks);
    if (!collectives_) return;
    for (const Transfer& transfer : transfers) streams_.push_back(&transfer.stream().state());
    const auto place = streams_.begin() + static_cast<std::ptrdiff_t>(root_);
    streams_.insert(place, &copy_stream(source).state());
  }

  // Adds the copies of a tensor, if the collective can make them.
  bool add(const FanOut& fan) {
    if (!collectives_) return false;
    Collectives::Broadcast broadcast{{}, whole_of(fan.source).width};
    for (const Tensor& copy : fan.copies) {
      if (!copy.defined()) return false;  // every rank takes part
      broadcast.data.push_back(copy.impl()->data());
    }
    if (broadcast.bytes == 0) return false;
    const auto place = broadcast.data.begin() + static_cast<std::ptrdiff_t>(root_);
    broadcast.data.insert(place, fan.source.impl()->data());
    sources_.push_back(fan.source);
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
  std::size_t root_ = 0;
  std::vector<lockstep::detail::StreamState*> streams_;
  std::vector<Tensor> sources_;
  std::vector<Collectives::Broadcast> broadcasts_;
};

// Issues the copies of several tensors of one device to the Transfers' streams: as one collective
// where all `devices` of the broadcast are distinct GPUs and lockstep/nccl.hpp is there, each by
// itself elsewhere.
inline void fan_out(const std::vector<FanOut>& all, const std::vector<Device>& devices,
                    const std::vector<Transfer>& transfers) {
  if (all.empty()) return;
  const profile::RecordFunction range("broadcast");
  CopiesTogether copies;
  FanOutRanks together(all[0].source.device(), devices, transfers);
  for (const FanOut& fan : all) {
    if (together.add(fan)) continue;
    for (std::size_t t = 0; t < transfers.size(); ++t) {
      if (!fan.copies[t].defined()) continue;
      transfers[t].copy_out(fan.copies[t], fan.source, whole_of(fan.source), copies);
    }
  }
  copies.issue();
  together.issue();
}

}  // namespace lockstep::comm::detail
