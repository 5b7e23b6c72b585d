// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/never_destroyed.hpp>
#include <lockstep/warning.hpp>

#include <functional>
#include <iostream>
#include <mutex>
#include <set>
#include <string>

namespace lockstep::detail {

// Where warnings go. `mutex` guards it and is held while the handler runs, so that lines of two
// threads do not mix.
struct WarningSink {
  std::mutex mutex;
  std::function<void(const std::string&)> handler;
  std::set<std::string> printed;
};

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE void set_warning_handler(std::function<void(const std::string&)> handler) {
  auto& sink = detail::never_destroyed<detail::WarningSink>();
  const std::lock_guard lock(sink.mutex);
  sink.handler.swap(handler);  // the old one is destroyed unlocked: it may warn
}

LOCKSTEP_INLINE void warn(const std::string& text) {
  auto& sink = detail::never_destroyed<detail::WarningSink>();
  const std::lock_guard lock(sink.mutex);
  if (sink.handler) {
    sink.handler(text);
  } else if (sink.printed.insert(text).second) {
    std::cerr << "lockstep: warning: " + text + '\n';  // one write: others may write, too
  }
}

}  // namespace lockstep
