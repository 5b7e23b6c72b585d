// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <ostream>

namespace lockstep::distributed::detail {

// The time by which a blocking call must return, together with the time limit that its error names.
// It uses the steady clock, which nobody can set.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  // `timeout` from now. With 0, what does not succeed at once fails.
  explicit Deadline(std::chrono::milliseconds timeout)
      : timeout_(timeout),
        at_(Clock::now() + std::clamp(timeout, std::chrono::milliseconds(0), kLongest)) {
    check<ValueError>(timeout.count() >= 0, "a time limit must be 0 or more, not ", timeout.count(),
                      " ms");
  }

  std::chrono::milliseconds timeout() const { return timeout_; }
  Clock::time_point at() const { return at_; }
  bool passed() const { return Clock::now() >= at_; }

  // The milliseconds left, rounded up, from 0 to `most`, as poll(2) takes them.
  int poll_timeout(std::chrono::milliseconds most = std::chrono::hours(1)) const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(at_ - Clock::now());
    return static_cast<int>(std::clamp(left, std::chrono::milliseconds(0), most).count());
  }

 private:
  // Longer time limits are cut to this one, which can be added to the present without overflow.
  static constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24 * 365);

  std::chrono::milliseconds timeout_;
  Clock::time_point at_;
};

// The pause between two checks of something that sends no notice: doubles each time, up to
// `longest`, and never passes the deadline.
class Pause {
 public:
  explicit Pause(std::chrono::milliseconds longest = std::chrono::milliseconds(20))
      : longest_(longest) {}

  void operator()(const Deadline& deadline) {
    ::poll(nullptr, 0, deadline.poll_timeout(next_));
    next_ = std::min(2 * next_, longest_);
  }

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
