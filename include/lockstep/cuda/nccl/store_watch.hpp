// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/group/group_watch.hpp>
#include <lockstep/distributed/store/store.hpp>
#include <lockstep/distributed/watchdog/watchdog.hpp>
#include <lockstep/distributed/watchdog/watchdog_options.hpp>
#include <lockstep/error.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::nccl::detail {

// Starts a watchdog between the processes that share a store, with the options of rank 0's
// environment. All of them call it, with a store for this alone. With one rank, or if
// LOCKSTEP_WATCHDOG is 0 on rank 0, there is none.
inline distributed::detail::GroupWatch watch_over(int rank, int size, distributed::Store& store) {
  if (size == 1) return {};
  distributed::WatchdogOptions options;
  if (rank == 0) {
    const bool wanted = distributed::detail::watch_is_wanted();
    if (wanted) options = distributed::WatchdogOptions::from_environment();
    store.set("options", lockstep::detail::str(wanted ? 1 : 0, ' ', options.interval.count(), ' ',
                                               options.heartbeat_timeout.count(), ' ',
                                               options.collective_timeout.count()));
    if (!wanted) return {};
  } else {
    std::istringstream text(store.get("options"));
    bool wanted = false;
    std::int64_t interval = 0;
    std::int64_t heartbeat = 0;
    std::int64_t collective = 0;
    text >> wanted >> interval >> heartbeat >> collective;
    check<distributed::StoreError>(!text.fail(), store.name(),
                                   ": the value of key 'options' is not a watchdog's");
    if (!wanted) return {};
    options.interval = std::chrono::milliseconds(interval);
    options.heartbeat_timeout = std::chrono::milliseconds(heartbeat);
    options.collective_timeout = std::chrono::milliseconds(collective);
  }
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return distributed::detail::GroupWatch(
      std::make_shared<distributed::Watchdog>(rank, size, store, options), std::move(ranks));
}

}  // namespace lockstep::nccl::detail
