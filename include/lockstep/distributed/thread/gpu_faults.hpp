// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/stream.hpp>

#include <chrono>
#include <thread>

// Questions to a rank's stream, or to an event on it, after a call has failed. They use queries: a
// synchronisation would also throw what the program is to be told when it reads results.
namespace lockstep::distributed::detail {

// True if the GPU has failed.
template <class Asked>
bool has_failed(const Asked& asked) noexcept {
  const auto ask = [&] {
    (void)asked.query();
    return true;
  };
  return !lockstep::detail::is_known(ask);
}

// Blocks until the work has ended. False if the GPU has failed, so that nobody knows.
template <class Asked>
bool await_end(const Asked& asked) noexcept {
  return lockstep::detail::is_known([&] {
    while (!asked.query()) std::this_thread::sleep_for(std::chrono::microseconds(20));
    return true;
  });
}

}  // namespace lockstep::distributed::detail
