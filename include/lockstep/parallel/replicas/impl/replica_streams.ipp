// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/parallel/replicas/replica_streams.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace lockstep::detail {

LOCKSTEP_INLINE Stream repetition_stream(Device device, std::size_t n) {
  // The pool hands out its streams in turn, so the next one may be another repetition's already. If
  // all are, two repetitions share one.
  constexpr int kMostTries = 32;
  static std::mutex& mutex = *new std::mutex;  // guards `streams`
  static auto& streams = *new std::map<std::pair<int, std::size_t>, Stream>;
  const std::lock_guard lock(mutex);
  const auto found = streams.find({device.index, n});
  if (found != streams.end()) return found->second;
  Stream stream = pool_stream(device);
  const auto is_taken = [&] {
    return any_of(streams, [&](const auto& known) { return known.second == stream; });
  };
  for (int i = 1; i < kMostTries && is_taken(); ++i) stream = pool_stream(device);
  return streams.emplace(std::pair(device.index, n), stream).first->second;
}

LOCKSTEP_INLINE ReplicaStreams::ReplicaStreams(const std::vector<Device>& devices) {
  for (std::size_t i = 1; i < devices.size(); ++i) {
    if (!devices[i].is_cuda()) continue;
    const auto here = devices.begin() + static_cast<std::ptrdiff_t>(i);
    const auto earlier = std::count(devices.begin(), here, devices[i]);
    if (earlier == 0) continue;
    own_.resize(devices.size());
    own_[i] = &repetition_stream(devices[i], static_cast<std::size_t>(earlier)).state();
  }
}

}  // namespace lockstep::detail
