// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/distributed/socket/socket_frame.hpp>
#include <lockstep/distributed/watchdog/watchdog_ledger.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::distributed::detail {

// What a rank's watchdog says to rank 0's.
enum class ToServer : std::uint8_t {
  hello,      // token, rank, size; the first on a connection
  group,      // a new one, numbered in this order: how many of the same ranks before it, the ranks
  heartbeat,  // for groups in which something has changed: the group's number, a position; then
              // how many ends it knows of, or 0 if another heartbeat of the same moment follows
  leave_group,  // a group's number: this rank has done with it; after its last position
  abort,        // a text: this rank has failed
  told,         // it knows of a fault
  finished,     // it comes to no collective any more; after a heartbeat
  goodbye,      // it has ended in good order; after a last heartbeat
};

// What rank 0's watchdog says to a rank's.
enum class FromServer : std::uint8_t {
  welcome,
  refused,    // a text: why a hello was not what it should be
  heartbeat,  // the answer to a rank's: how many ranks have ended
  faults,     // all that have been found
  last,       // a group and rank 0's last collective in it; before
  closing,    // rank 0 has ended in good order
};

constexpr std::size_t kMaxHello = 64;
constexpr std::size_t kMaxWatchdogFrame = std::size_t{1} << 20;
// The longest text in a frame; more is cut off.
constexpr std::size_t kMaxWatchdogText = std::size_t{1} << 14;
// The most positions in a heartbeat; more go in several.
constexpr std::size_t kMaxPositions = 1024;

// How long the ends of a connection wait for each other when one says goodbye.
constexpr std::chrono::milliseconds kLongestGoodbye{2000};

void write(FrameWriter& frame, std::size_t group, const WatchdogLedger::Position& position);
WatchdogLedger::Position read_position(FrameReader& frame);

void write(FrameWriter& frame, const WatchdogLedger::GroupKey& group);
WatchdogLedger::GroupKey read_group(FrameReader& frame);

std::string write_faults(const std::vector<Fault>& faults);
std::vector<Fault> read_faults(FrameReader& frame);

// The time for which a thread has listened. That in which its own process was stopped, or got no
// core, is not counted: what the others sent meanwhile it could not hear.
class ListeningClock {
 public:
  using Time = WatchdogLedger::Time;

  // The thread looks at the clock every `interval`.
  explicit ListeningClock(std::chrono::milliseconds interval) : most_(2 * interval) {}

  Time now();

 private:
  std::chrono::milliseconds most_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::duration listened_{0};
};

}  // namespace lockstep::distributed::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/watchdog/impl/watchdog_protocol.ipp>
#endif
