// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/distributed/socket/socket_frame.hpp>
#include <lockstep/distributed/watchdog/watchdog_ledger.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace lockstep::distributed::detail {

// What a rank's watchdog says to rank 0's.
enum class ToServer : std::uint8_t {
  hello,     // token, rank, size; the first on a connection
  group,     // a new one, numbered in this order: how many of these ranks came before it, the ranks
  position,  // a group's number, and where the rank is in it, if that has changed
  heartbeat,    // how many ends it knows of; follows the positions of that moment
  leave_group,  // a group's number: this rank has left it; follows its last position
  abort,        // a text: this rank has failed
  told,         // it knows of a fault
  finished,     // it takes part in no further collective; follows a heartbeat
  goodbye,      // it has ended normally; follows a last heartbeat
};

// What rank 0's watchdog says to a rank's.
enum class FromServer : std::uint8_t {
  welcome,
  refused,    // a text: what was wrong with a hello
  heartbeat,  // the answer to a rank's: how many ranks have ended
  faults,     // all found so far
  last,       // a group and rank 0's last collective in it; precedes
  closing,    // rank 0 has ended normally
};

constexpr std::size_t kMaxHello = 64;
constexpr std::size_t kMaxWatchdogFrame = std::size_t{1} << 20;
// The longest text in a frame; longer ones are cut.
constexpr std::size_t kMaxWatchdogText = std::size_t{1} << 14;

// The longest age that is believed.
constexpr std::chrono::milliseconds kLongestAge = std::chrono::hours(24 * 365 * 100);

// How long the two ends of a connection wait for each other when one says goodbye.
constexpr std::chrono::milliseconds kLongestGoodbye{2000};

inline void write(FrameWriter& frame, const WatchdogLedger::Position& position) {
  frame.number(position.number).number<std::uint8_t>(position.inside);
  frame.number(position.age.count()).text(position.call);
}
inline WatchdogLedger::Position read_position(FrameReader& frame) {
  WatchdogLedger::Position position;
  position.number = frame.number<std::uint64_t>();
  position.inside = frame.number<std::uint8_t>() != 0;
  position.age = std::chrono::milliseconds(frame.number<std::int64_t>());
  check<BadFrame>(position.age.count() >= 0 && position.age <= kLongestAge, "an impossible age, ",
                  position.age.count(), " ms");
  position.call = frame.text();
  return position;
}

inline void write(FrameWriter& frame, const WatchdogLedger::GroupKey& group) {
  frame.number(group.second).number(static_cast<std::uint32_t>(group.first.size()));
  for (const int rank : group.first) frame.number(static_cast<std::int32_t>(rank));
}
inline WatchdogLedger::GroupKey read_group(FrameReader& frame) {
  WatchdogLedger::GroupKey group;
  group.second = frame.number<std::uint32_t>();
  for (std::size_t left = frame.count(); left > 0; --left) {
    group.first.push_back(frame.number<std::int32_t>());
  }
  return group;
}

inline std::string write_faults(const std::vector<Fault>& faults) {
  // More would only be consequences of the first ones.
  const std::size_t count = std::min<std::size_t>(faults.size(), 16);
  FrameWriter frame(FromServer::faults);
  frame.number(static_cast<std::uint32_t>(count));
  for (std::size_t i = 0; i < count; ++i) {
    frame.number(static_cast<std::uint8_t>(faults[i].kind)).number(faults[i].rank);
    frame.text(std::string_view(faults[i].text).substr(0, kMaxWatchdogText));
  }
  return frame.take();
}
inline std::vector<Fault> read_faults(FrameReader& frame) {
  std::vector<Fault> faults;
  for (std::size_t left = frame.count(); left > 0; --left) {
    Fault& fault = faults.emplace_back();
    fault.kind = static_cast<Fault::Kind>(frame.number<std::uint8_t>());
    fault.rank = frame.number<std::int32_t>();
    fault.text = frame.text();
  }
  return faults;
}

// The time for which a thread has listened. Time in which its process was stopped, or got no core,
// does not count: it could not hear what the others sent then.
class ListeningClock {
 public:
  using Time = WatchdogLedger::Time;

  // The thread looks at the clock every `interval`.
  explicit ListeningClock(std::chrono::milliseconds interval) : most_(2 * interval) {}

  Time now() {
    const auto real = std::chrono::steady_clock::now();
    const auto step = std::min<std::chrono::steady_clock::duration>(real - last_, most_);
    last_ = real;
    listened_ += step;
    return std::chrono::duration_cast<Time>(listened_);
  }

 private:
  std::chrono::milliseconds most_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::duration listened_{0};
};

}  // namespace lockstep::distributed::detail
