// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <iomanip>
#include <ios>
#include <iostream>
#include <sstream>
#include <string>
#include <utility>

#include <unistd.h>

namespace example {

// Shows on standard output how far a loop of a known number of steps is: on a terminal a bar that
// is drawn anew a few times a second, elsewhere ten plain lines.
class ProgressBar {
 public:
  // `unit` is what the loop goes through, such as "images".
  ProgressBar(std::string title, std::int64_t steps, std::string unit)
      : title_(std::move(title)), steps_(steps), unit_(std::move(unit)) {}
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  // Leaves a bar that an exception has stopped on a line of its own.
  ~ProgressBar() {
    if (line_is_open_) std::fputs("\n", stdout);
  }

  // Step `step` of the loop, counted from 1, is done.
  void update(std::int64_t step, double loss, double per_second) {
    const bool last = step == steps_;
    if (on_terminal_) {
      const auto now = Clock::now();
      if (!last && now - drawn_ < std::chrono::milliseconds(100)) return;
      drawn_ = now;
      std::cout << '\r' << title_ << " [" << bar(step) << "] " << numbers(step, loss, per_second)
                << "\x1b[K" << (last ? "\n" : "") << std::flush;
      line_is_open_ = !last;
    } else if (last || step * 10 / steps_ != (step - 1) * 10 / steps_) {
      std::cout << title_ << "  step " << numbers(step, loss, per_second) << std::endl;
    }
  }

 private:
  using Clock = std::chrono::steady_clock;

  std::string bar(std::int64_t step) const {
    constexpr std::int64_t kWidth = 30;
    const std::int64_t done = steps_ > 0 ? kWidth * step / steps_ : kWidth;
    std::string text(static_cast<std::size_t>(done), '=');
    text.append(static_cast<std::size_t>(kWidth - done), ' ');
    return text;
  }

  std::string numbers(std::int64_t step, double loss, double per_second) const {
    std::ostringstream out;
    out << step << '/' << steps_ << std::fixed << std::setprecision(4) << "  loss " << loss
        << std::setprecision(0) << "  " << per_second << ' ' << unit_ << "/s";
    return out.str();
  }

  const std::string title_;
  const std::int64_t steps_;
  const std::string unit_;
  const bool on_terminal_ = ::isatty(STDOUT_FILENO) != 0;
  bool line_is_open_ = false;
  Clock::time_point drawn_{};
};

}  // namespace example
