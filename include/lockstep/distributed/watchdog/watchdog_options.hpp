// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/error.hpp>

#include <chrono>
#include <string>
#include <string_view>

namespace lockstep::distributed {

// How patient a Watchdog is.
struct WatchdogOptions {
  // The time between two heartbeats of a rank.
  std::chrono::milliseconds interval{1000};
  // A rank whose heartbeats stay away for longer is taken for hung. A process that dies is noticed
  // at once, without this limit: it is for one that is stopped, and for a machine that is lost.
  std::chrono::milliseconds heartbeat_timeout{30000};
  // For how long a rank may wait in a collective for others that do not come. It bounds the time by
  // which one rank may be ahead of another, so it is more than the longest thing that only some
  // ranks do: rank 0 that saves a checkpoint or evaluates, a slow first batch. torch waits for 10
  // minutes with NCCL and for 30 with Gloo.
  std::chrono::milliseconds collective_timeout{std::chrono::minutes(5)};
  // By what name or address the others reach rank 0's machine. If it is empty: what MASTER_ADDR
  // says, or else the machine's own name.
  std::string host{};

  // The defaults, with LOCKSTEP_HEARTBEAT_INTERVAL, LOCKSTEP_HEARTBEAT_TIMEOUT and
  // LOCKSTEP_COLLECTIVE_TIMEOUT, in seconds, where they are set. A ValueError for what is no such
  // number.
  static WatchdogOptions from_environment();

  // A ValueError unless the interval, the time limits and the host are possible.
  void check() const;
};

namespace detail {

// A ValueError, which names where the host comes from, if that cannot be a machine's.
void check_host(const char* source, std::string_view host);

// True unless LOCKSTEP_WATCHDOG is 0 in the environment.
bool watch_is_wanted();

}  // namespace detail

}  // namespace lockstep::distributed

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/watchdog/impl/watchdog_options.ipp>
#endif
