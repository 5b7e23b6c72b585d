// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/error.hpp>

#include <chrono>
#include <string>
#include <string_view>

namespace lockstep::distributed {

// The time limits of a Watchdog.
struct WatchdogOptions {
  // The time between two heartbeats of a rank.
  std::chrono::milliseconds interval{1000};
  // A rank without heartbeats for longer than this is taken for hung: it is stopped, or its machine
  // is lost. A process that dies is noticed at once.
  std::chrono::milliseconds heartbeat_timeout{30000};
  // How long a rank may wait in a collective for others. It must exceed the longest thing that only
  // some ranks do: saving a checkpoint or evaluating on rank 0, a slow first batch. torch waits for
  // 10 minutes with NCCL and for 30 with Gloo.
  std::chrono::milliseconds collective_timeout{std::chrono::minutes(5)};
  // The name or address by which the others reach rank 0's machine. If empty: MASTER_ADDR, else the
  // machine's own name.
  std::string host{};

  // The defaults, with LOCKSTEP_HEARTBEAT_INTERVAL, LOCKSTEP_HEARTBEAT_TIMEOUT and
  // LOCKSTEP_COLLECTIVE_TIMEOUT, in seconds, where these are set. A ValueError for one that is not
  // such a number.
  static WatchdogOptions from_environment();

  // Throws a ValueError unless the interval, the time limits and the host are valid.
  void check() const;
};

namespace detail {

// Throws a ValueError that names `source` if `host` cannot be a machine's name or address.
void check_host(const char* source, std::string_view host);

// True unless LOCKSTEP_WATCHDOG is 0 in the environment.
bool watchdog_enabled();

}  // namespace detail

}  // namespace lockstep::distributed

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/watchdog/impl/watchdog_options.ipp>
#endif
