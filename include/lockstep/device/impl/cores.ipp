// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/cores.hpp>
#include <lockstep/error.hpp>

#include <functional>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

namespace lockstep::detail {

template <class Run>
std::thread started(std::string_view none, Run run) {
  try {
    return std::thread(std::move(run));
  } catch (const std::system_error& error) {
    fail<Error>(none, ": ", error.what());
  }
}

// Both take a std::function, so that there is one type of std::thread: wherever a program destroys
// a std::thread, g++ compiles what all its threads run.
LOCKSTEP_INLINE std::thread start_thread(std::string_view none, std::function<void()> run) {
  return started(none, [unbound = unbound_affinity, run = std::move(run)] {
    unbound_affinity = unbound;
    run();
  });
}

LOCKSTEP_INLINE void start_detached(std::string_view none, std::function<void()> run) {
  started(none, [cores = unbound_affinity, run = std::move(run)] {
    if (cores) (void)set_affinity(*cores);
    run();
  }).detach();
}

}  // namespace lockstep::detail
