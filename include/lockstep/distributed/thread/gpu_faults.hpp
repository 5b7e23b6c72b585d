// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/stream.hpp>

#include <chrono>
#include <thread>

// What is asked of a rank's stream, or of an event on it, once a call has failed. The answers are
// those of a query: a synchronisation would also throw what the program is to be told of when it
// reads results, such as that some are lost.
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

// Blocks until the work has ended. False if the GPU has failed: nobody knows then whether it has.
template <class Asked>
bool await_end(const Asked& asked) noexcept {
  return lockstep::detail::is_known([&] {
    while (!asked.query()) std::this_thread::sleep_for(std::chrono::microseconds(20));
    return true;
  });
}

}  // namespace lockstep::distributed::detail
