// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/group/deadline.hpp>
#include <lockstep/error.hpp>

#include <poll.h>

#include <algorithm>
#include <chrono>

namespace lockstep::distributed::detail {

LOCKSTEP_INLINE Deadline::Deadline(std::chrono::milliseconds timeout)
    : timeout_(timeout), at_(Clock::now() + std::min(timeout, kLongest)) {
  check<ValueError>(timeout.count() >= 0, "a time limit must be 0 or more, not ", timeout.count(),
                    " ms");
}

LOCKSTEP_INLINE int Deadline::poll_timeout(std::chrono::milliseconds most) const {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(at_ - Clock::now());
  return static_cast<int>(std::clamp(left, std::chrono::milliseconds(0), most).count());
}

LOCKSTEP_INLINE void Pause::operator()(const Deadline& deadline) {
  ::poll(nullptr, 0, deadline.poll_timeout(next_));
  next_ = std::min(2 * next_, longest_);
}

}  // namespace lockstep::distributed::detail
