// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/cores.hpp>

#include <functional>
#include <thread>
#include <utility>

namespace lockstep::detail {

// Both take a std::function, so that a std::thread of one type alone is made: g++ compiles what the
// threads of a program run wherever the program destroys a std::thread.
LOCKSTEP_INLINE std::thread start_thread(std::function<void()> run) {
  return std::thread([unbound = unbound_affinity, run = std::move(run)] {
    unbound_affinity = unbound;
    run();
  });
}

LOCKSTEP_INLINE void start_detached(std::function<void()> run) {
  std::thread([cores = unbound_affinity, run = std::move(run)] {
    if (cores) (void)set_affinity(*cores);
    run();
  }).detach();
}

}  // namespace lockstep::detail
