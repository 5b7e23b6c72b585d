// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/inference_mode.hpp>
#include <lockstep/autograd/variable.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/parallel/comm/detail/buffers.hpp>
#include <lockstep/parallel/comm/detail/fan_out.hpp>
#include <lockstep/parallel/comm/detail/transfer.hpp>
#include <lockstep/parallel/replicas/replica_cache.hpp>
#include <lockstep/profile/recording/recorder.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

namespace lockstep::detail {

struct ReplicaCache::Target {
  Replica* replica;
  comm::detail::Transfer transfer;
  bool ordered = false;  // the transfer waits for the users of the replica's memory
};

LOCKSTEP_INLINE std::vector<Tensor> ReplicaCache::refresh(const std::vector<Tensor>& originals,
                                                          const std::vector<Device>& devices) {
  const std::lock_guard lock(mutex_);
  forget_if_changed(originals);
  if (replicas_.size() < devices.size()) replicas_.resize(devices.size());
  if (originals.empty()) return {};
  std::vector<Tensor> result;
  std::vector<Target> targets;
  result.reserve(devices.size() * originals.size());
  targets.reserve(devices.size());
  const std::size_t own = comm::detail::first_place_of(originals[0].device(), devices);
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (i == own) {
      result.insert(result.end(), originals.begin(), originals.end());
      continue;
    }
    targets.push_back({&replicas_[i], comm::detail::Transfer(devices[i])});
    prepare(replicas_[i], targets.back().transfer.stream(), originals);
    for (std::size_t j = 0; j < originals.size(); ++j) {
      const Tensor& part = replicas_[i].flat.parts[j];
      // This call's own handle, since forward may change it (set_data, a hook). For trained tensors
      // Broadcast makes one.
      result.push_back(originals[j].requires_grad() ? part : make_view(part));
    }
  }
  update(targets, originals, devices);
  // Needed even if this call copied nothing: another compute stream may be current now.
  for (const Target& target : targets) target.transfer.finish(target.replica->flat.buffers);
  return result;
}

LOCKSTEP_INLINE void ReplicaCache::forget_if_changed(const std::vector<Tensor>& originals) {
  bool same = originals.size() == originals_.size();
  for (std::size_t j = 0; same && j < originals.size(); ++j) {
    const auto& [tensor, memory] = originals_[j];
    same = tensor.is_same(originals[j]) && same_memory(memory, originals[j]) &&
           memory.impl()->version == originals[j].impl()->version;
  }
  if (same) return;
  originals_.clear();
  replicas_.clear();
  for (const Tensor& tensor : originals) originals_.push_back({tensor, make_view(tensor)});
}

LOCKSTEP_INLINE void ReplicaCache::prepare(Replica& replica, const Stream& stream,
                                           const std::vector<Tensor>& originals) {
  const Device device = stream.device();
  if (!replica.versions.empty() && replica.device == device) return;
  const InferenceModeGuard normal(false);  // the memory outlives the mode that this call is in
  replica.versions.clear();                // in case the allocation throws
  replica.device = device;
  replica.flat = comm::detail::allocate_groups(stream, originals,
                                               comm::detail::buffer_groups(originals, {SIZE_MAX}));
  replica.versions.assign(originals.size(), Versions{});
}

LOCKSTEP_INLINE void ReplicaCache::update(std::vector<Target>& targets,
                                          const std::vector<Tensor>& originals,
                                          const std::vector<Device>& devices) {
  std::vector<comm::detail::FanOutCopy> stale;
  std::vector<std::pair<Versions*, Versions>> renewed;
  stale.reserve(originals.size() * targets.size());
  renewed.reserve(originals.size() * targets.size());
  for (std::size_t j = 0; j < originals.size(); ++j) {
    for (Target& target : targets) {
      const Tensor& copy = target.replica->flat.parts[j];
      Versions& seen = target.replica->versions[j];
      const Versions now{originals[j].version(), copy.version()};
      if (seen == now) continue;
      if (!std::exchange(target.ordered, true)) {
        for (const Tensor& buffer : target.replica->flat.buffers) {
          target.transfer.after_users(buffer);
        }
      }
      copy.mark_changed();
      renewed.emplace_back(&seen, Versions{now.original, copy.version()});
      stale.push_back({&originals[j], &copy, &target.transfer});
    }
  }
  try {
    comm::detail::fan_out(stale, devices);
  } catch (...) {
    // Earlier copies may have been aborted along with these, so all are made again next time.
    for (const Target& target : targets) {
      std::fill(target.replica->versions.begin(), target.replica->versions.end(), Versions{});
    }
    throw;
  }
  for (const auto& [seen, now] : renewed) *seen = now;
}

}  // namespace lockstep::detail
