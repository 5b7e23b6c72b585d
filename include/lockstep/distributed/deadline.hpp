// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <chrono>
#include <ostream>

namespace lockstep::distributed::detail {

// A point in time that a blocking call must not go past, kept together with the time limit that it
// was made from, which its error names. The clock is the steady one: nobody sets it.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  // `timeout` from now. 0 is allowed: what does not succeed at once has failed.
  explicit Deadline(std::chrono::milliseconds timeout);

  std::chrono::milliseconds timeout() const { return timeout_; }
  Clock::time_point at() const { return at_; }
  bool passed() const { return Clock::now() >= at_; }

  // What is left, rounded up, for poll(2): at least 0, and at most `most`.
  int poll_timeout(std::chrono::milliseconds most = std::chrono::hours(1)) const;

 private:
  // Instead of forever: the sum with the present must not overflow.
  static constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24 * 365);

  std::chrono::milliseconds timeout_;
  Clock::time_point at_;
};

// Waits a little between two tries of what nobody tells the end of, longer from time to time.
class Pause {
 public:
  explicit Pause(std::chrono::milliseconds longest = std::chrono::milliseconds(20))
      : longest_(longest) {}

  void operator()(const Deadline& deadline);

 private:
  std::chrono::milliseconds longest_;
  std::chrono::milliseconds next_{1};
};

// Prints a time limit as "1.5 s".
struct Seconds {
  std::chrono::milliseconds time;

  friend std::ostream& operator<<(std::ostream& out, const Seconds& seconds) {
    return out << static_cast<double>(seconds.time.count()) / 1000 << " s";
  }
};

}  // namespace lockstep::distributed::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/deadline.ipp>
#endif
