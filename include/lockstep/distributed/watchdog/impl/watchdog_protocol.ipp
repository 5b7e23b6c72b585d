// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/socket/socket_frame.hpp>
#include <lockstep/distributed/watchdog/watchdog_ledger.hpp>
#include <lockstep/distributed/watchdog/watchdog_protocol.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace lockstep::distributed::detail {

LOCKSTEP_INLINE void write(FrameWriter& frame, std::size_t group,
                           const WatchdogLedger::Position& position) {
  frame.number(static_cast<std::uint32_t>(group));
  frame.number(position.number).number<std::uint8_t>(position.inside);
  frame.number(position.age.count()).text(position.call);
}

LOCKSTEP_INLINE WatchdogLedger::Position read_position(FrameReader& frame) {
  WatchdogLedger::Position position;
  position.number = frame.number<std::uint64_t>();
  position.inside = frame.number<std::uint8_t>() != 0;
  position.age = std::chrono::milliseconds(frame.number<std::int64_t>());
  position.call = frame.text();
  return position;
}

LOCKSTEP_INLINE void write(FrameWriter& frame, const WatchdogLedger::GroupKey& group) {
  frame.number(group.second).number(static_cast<std::uint32_t>(group.first.size()));
  for (const int rank : group.first) frame.number(static_cast<std::int32_t>(rank));
}

LOCKSTEP_INLINE WatchdogLedger::GroupKey read_group(FrameReader& frame) {
  WatchdogLedger::GroupKey group;
  group.second = frame.number<std::uint32_t>();
  for (std::size_t left = frame.count(); left > 0; --left) {
    group.first.push_back(frame.number<std::int32_t>());
  }
  return group;
}

LOCKSTEP_INLINE std::string write_faults(const std::vector<Fault>& faults) {
  // More would only be the consequences of the first ones.
  const std::size_t count = std::min<std::size_t>(faults.size(), 16);
  FrameWriter frame(FromServer::faults);
  frame.number(static_cast<std::uint32_t>(count));
  for (std::size_t i = 0; i < count; ++i) {
    frame.number(static_cast<std::uint8_t>(faults[i].kind)).number(faults[i].rank);
    frame.text(std::string_view(faults[i].text).substr(0, kMaxWatchdogText));
  }
  return frame.take();
}

LOCKSTEP_INLINE std::vector<Fault> read_faults(FrameReader& frame) {
  std::vector<Fault> faults;
  for (std::size_t left = frame.count(); left > 0; --left) {
    Fault& fault = faults.emplace_back();
    fault.kind = static_cast<Fault::Kind>(frame.number<std::uint8_t>());
    fault.rank = frame.number<std::int32_t>();
    fault.text = frame.text();
  }
  return faults;
}

LOCKSTEP_INLINE ListeningClock::Time ListeningClock::now() {
  const auto real = std::chrono::steady_clock::now();
  const auto step = std::min<std::chrono::steady_clock::duration>(real - last_, most_);
  last_ = real;
  listened_ += step;
  return std::chrono::duration_cast<Time>(listened_);
}

}  // namespace lockstep::distributed::detail
