// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/group/group_watch.hpp>
#include <lockstep/distributed/store/store.hpp>
#include <lockstep/distributed/watchdog/watchdog.hpp>
#include <lockstep/distributed/watchdog/watchdog_options.hpp>

#include <cstddef>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

namespace lockstep::nccl::detail {

// Starts a watchdog between the processes that share a store, with the options of rank 0's
// environment. All of them call it, with a store for this alone. With one rank, or if
// LOCKSTEP_WATCHDOG is 0 on rank 0, there is none.
inline distributed::detail::GroupWatch watch_over(int rank, int size, distributed::Store& store) {
  if (size == 1) return {};
  const bool wanted =
      rank == 0 ? distributed::detail::watch_is_wanted() : store.get("wanted") == "1";
  distributed::WatchdogOptions options;
  if (rank == 0) {
    if (wanted) options = distributed::WatchdogOptions::from_environment();
    store.set("wanted", wanted ? "1" : "0");
  }
  if (!wanted) return {};
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return distributed::detail::GroupWatch(
      std::make_shared<distributed::Watchdog>(rank, size, store, options), std::move(ranks));
}

}  // namespace lockstep::nccl::detail
