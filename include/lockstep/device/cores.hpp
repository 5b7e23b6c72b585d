// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <thread>

#if defined(__linux__)
#include <sched.h>
#endif

namespace lockstep::detail {

// The number of cores that the calling thread may run on, at least 1. `hardware_concurrency` alone
// would count cores that taskset or a batch system has taken away.
inline unsigned usable_cores() noexcept {
#if defined(__linux__)
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
    return static_cast<unsigned>(CPU_COUNT(&allowed));
  }
#endif
  const unsigned cores = std::thread::hardware_concurrency();
  return cores > 0 ? cores : 1;
}

}  // namespace lockstep::detail
