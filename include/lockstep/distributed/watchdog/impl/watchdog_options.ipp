// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/group/deadline.hpp>
#include <lockstep/distributed/watchdog/watchdog_options.hpp>
#include <lockstep/error.hpp>
#include <lockstep/number_in_text.hpp>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <string_view>

namespace lockstep::distributed::detail {

// The variable's value, in seconds, or `value` if it is not set.
inline std::chrono::milliseconds seconds_from_environment(const char* variable,
                                                          std::chrono::milliseconds value) {
  const char* const set = std::getenv(variable);
  if (set == nullptr) return value;
  const auto seconds = lockstep::detail::number_in<double>(set);
  constexpr double kMost = 1e9;
  lockstep::check<ValueError>(seconds && *seconds >= 0.001 && *seconds <= kMost, variable,
                              " must be a number of seconds above 0, not '", set, '\'');
  return std::chrono::milliseconds(std::llround(*seconds * 1000));
}

LOCKSTEP_INLINE void check_host(const char* source, std::string_view host) {
  lockstep::check<ValueError>(host.find_first_of(" \t\n\v\f\r") == std::string_view::npos, source,
                              " is '", host, "', but a machine's name or address has no blanks");
}

LOCKSTEP_INLINE bool watchdog_enabled() {
  const char* const set = std::getenv("LOCKSTEP_WATCHDOG");
  return !set || std::string_view(set) != "0";
}

}  // namespace lockstep::distributed::detail

namespace lockstep::distributed {

LOCKSTEP_INLINE void WatchdogOptions::check() const {
  // A clock counts nanoseconds; two such times must add up without overflow.
  constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24 * 365 * 50);
  lockstep::check<ValueError>(interval.count() > 0 && interval <= kLongest,
                              "WatchdogOptions.interval is ", interval.count(),
                              " ms, but must be more than 0 and at most ", kLongest.count());
  lockstep::check<ValueError>(heartbeat_timeout / 2 >= interval,
                              "WatchdogOptions.heartbeat_timeout is ", heartbeat_timeout.count(),
                              " ms, but must be at least twice the interval, which is ",
                              interval.count(), " ms");
  lockstep::check<ValueError>(collective_timeout.count() > 0,
                              "WatchdogOptions.collective_timeout is ", collective_timeout.count(),
                              " ms, but must be more than 0");
  detail::check_host("WatchdogOptions.host", host);
}

LOCKSTEP_INLINE WatchdogOptions WatchdogOptions::from_environment() {
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
