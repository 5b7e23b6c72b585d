// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/profile/profiler.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace example {

// The timeline of some steps of training, as a file that https://ui.perfetto.dev opens: of the
// twenty behind the first five, in which memory is still made.
class TimelineFile {
 public:
  // Without a path nothing is recorded. A file that is there is replaced.
  explicit TimelineFile(std::filesystem::path path) : path_(std::move(path)) {}

  // To be called before each step.
  void begin_step() {
    if (path_.empty()) return;
    ++steps_;
    if (steps_ == kWarmUp + 1) profiler_.emplace();
    if (steps_ == kWarmUp + kRecorded + 1) profiler_->stop();
  }

  // To be called behind the last step: writes the file, and says so.
  void finish() {
    if (path_.empty()) return;
    if (steps_ <= kWarmUp) {
      throw std::runtime_error("no timeline: training ended before step " +
                               std::to_string(kWarmUp + 1));
    }
    profiler_->export_chrome_trace(path_);
    std::cout << "timeline of " << std::min(steps_ - kWarmUp, kRecorded) << " steps in "
              << path_.string() << ", for https://ui.perfetto.dev" << std::endl;
  }

 private:
  static constexpr std::int64_t kWarmUp = 5;
  static constexpr std::int64_t kRecorded = 20;

  const std::filesystem::path path_;
  std::int64_t steps_ = 0;
  std::optional<lockstep::profile::Profiler> profiler_;
};

}  // namespace example
