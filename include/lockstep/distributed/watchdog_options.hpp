// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/deadline.hpp>
#include <lockstep/error.hpp>

#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>

namespace lockstep::distributed {

// How patient a Watchdog is. The same on all ranks.
struct WatchdogOptions {
  // Between two heartbeats of a rank.
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

  // With LOCKSTEP_HEARTBEAT_INTERVAL, LOCKSTEP_HEARTBEAT_TIMEOUT and LOCKSTEP_COLLECTIVE_TIMEOUT,
  // in seconds, where they are set.
  static WatchdogOptions from_environment();

  void check() const {
    lockstep::check<ValueError>(interval.count() > 0, "WatchdogOptions.interval is ",
                                interval.count(), " ms, but must be more than 0");
    lockstep::check<ValueError>(heartbeat_timeout >= 2 * interval,
                                "WatchdogOptions.heartbeat_timeout is ", heartbeat_timeout.count(),
                                " ms, but must be at least twice the interval, which is ",
                                interval.count(), " ms");
    lockstep::check<ValueError>(collective_timeout.count() > 0,
                                "WatchdogOptions.collective_timeout is ",
                                collective_timeout.count(), " ms, but must be more than 0");
  }
};

namespace detail {

// What the variable says, in seconds, or `value` if it is not set.
inline std::chrono::milliseconds seconds_from_environment(const char* variable,
                                                          std::chrono::milliseconds value) {
  const char* const set = std::getenv(variable);
  if (set == nullptr) return value;
  const std::string_view text = set;
  double seconds = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  constexpr double kMost = 1e9;
  lockstep::check<ValueError>(error == std::errc() && rest == text.data() + text.size() &&
                                  seconds >= 0.001 && seconds <= kMost,
                              variable, " must be a number of seconds above 0, not '", text, '\'');
  return std::chrono::milliseconds(std::llround(seconds * 1000));
}

// True unless LOCKSTEP_WATCHDOG is 0 in the environment.
inline bool watch_is_wanted() {
  const char* const set = std::getenv("LOCKSTEP_WATCHDOG");
  return !set || std::string_view(set) != "0";
}

}  // namespace detail

inline WatchdogOptions WatchdogOptions::from_environment() {
  using detail::seconds_from_environment;
  WatchdogOptions options;
  options.interval = seconds_from_environment("LOCKSTEP_HEARTBEAT_INTERVAL", options.interval);
  options.heartbeat_timeout =
      seconds_from_environment("LOCKSTEP_HEARTBEAT_TIMEOUT", options.heartbeat_timeout);
  options.collective_timeout =
      seconds_from_environment("LOCKSTEP_COLLECTIVE_TIMEOUT", options.collective_timeout);
  options.check();
  return options;
}

}  // namespace lockstep::distributed
