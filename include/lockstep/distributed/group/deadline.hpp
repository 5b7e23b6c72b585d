// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <ostream>

namespace lockstep::distributed::detail {

// The point in time by which a blocking call must return, kept with the time limit that it was made
// from, which the call's error names. The clock is the steady one, which nobody can set.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  // `timeout` from now. 0 is allowed: what does not succeed at once has failed.
  explicit Deadline(std::chrono::milliseconds timeout)
      : timeout_(timeout),
        at_(Clock::now() + std::clamp(timeout, std::chrono::milliseconds(0), kLongest)) {
    check<ValueError>(timeout.count() >= 0, "a time limit must be 0 or more, not ", timeout.count(),
                      " ms");
  }

  std::chrono::milliseconds timeout() const { return timeout_; }
  Clock::time_point at() const { return at_; }
  bool passed() const { return Clock::now() >= at_; }

  // The time left in milliseconds, rounded up, as poll(2) takes it: from 0 to `most`.
  int poll_timeout(std::chrono::milliseconds most = std::chrono::hours(1)) const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(at_ - Clock::now());
    return static_cast<int>(std::clamp(left, std::chrono::milliseconds(0), most).count());
  }

 private:
  // The longest time limit that is waited for: adding it to the present does not overflow.
  static constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24 * 365);

  std::chrono::milliseconds timeout_;
  Clock::time_point at_;
};

// The pause between two looks at something that sends no notice: twice as long each time, up to
// `longest`, and never past the deadline.
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
