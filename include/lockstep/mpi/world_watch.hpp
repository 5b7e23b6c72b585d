// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/store/hash_store.hpp>
#include <lockstep/distributed/watchdog/watchdog.hpp>
#include <lockstep/distributed/watchdog/watchdog_options.hpp>
#include <lockstep/error.hpp>
#include <lockstep/mpi/api.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string_view>

namespace lockstep::mpi::detail {

// What rank 0 broadcasts about its watchdog.
struct WatchInvitation {
  // The watchdog's address. Empty if nobody watches: by choice, or because of `error`.
  std::array<char, 512> address{};
  std::array<char, 1024> error{};

  template <std::size_t N>
  static void write(std::array<char, N>& to, std::string_view text) {
    to.fill('\0');
    std::copy_n(text.begin(), std::min(text.size(), N - 1), to.begin());
  }
};

// Makes the processes of a communicator watch each other, as rank 0's environment says. All of them
// call it, between operations. Null if there is only one process, or if watching is switched off.
// An Error on all ranks if one of them cannot take part; a bad_alloc on a rank without memory.
inline std::shared_ptr<distributed::Watchdog> watch_world(MPI_Comm world) {
  const int rank = rank_in(world);
  const int size = size_of(world);
  if (size == 1) return nullptr;

  distributed::WatchdogOptions options;
  std::shared_ptr<distributed::Watchdog> watchdog;
  WatchInvitation invitation;
  // From here on a rank that fails first goes on to where the others wait for it, and then throws.
  std::exception_ptr error;
  const auto join = [&] {
    // All ranks are here, or soon will be.
    constexpr std::chrono::minutes kJoinTimeout{1};
    distributed::HashStore store(kJoinTimeout);
    if (rank != 0) store.set("watchdog", invitation.address.data());
    watchdog = std::make_shared<distributed::Watchdog>(rank, size, store, options);
    if (rank == 0) WatchInvitation::write(invitation.address, store.get("watchdog"));
  };
  if (rank == 0 && distributed::detail::watchdog_enabled()) {
    try {
      options = distributed::WatchdogOptions::from_environment();
      join();
    } catch (const std::exception& thrown) {
      watchdog.reset();
      if (dynamic_cast<const std::bad_alloc*>(&thrown)) error = std::current_exception();
      WatchInvitation::write(invitation.error, thrown.what());
    }
  }
  check_mpi(MPI_Bcast(&invitation, sizeof invitation, MPI_BYTE, 0, world), "MPI_Bcast");
  if (error) std::rethrow_exception(error);
  check<Error>(invitation.error[0] == '\0',
               "rank 0 cannot watch the others: ", invitation.error.data());
  if (invitation.address[0] == '\0') return nullptr;

  if (rank != 0) error = lockstep::detail::thrown_by(join);
  // The lowest rank that cannot join, or the number of ranks.
  const auto [failed] = least_of_all(std::array{error ? rank : size}, world, watchdog.get());
  if (failed < size) watchdog.reset();  // before anything throws, as a normal end
  if (error) std::rethrow_exception(error);
  check<Error>(failed == size, "rank ", failed,
               " has failed to join the watchdog of rank 0, whose host is that of"
               " rank 0's MASTER_ADDR or, without one, its own name");
  return watchdog;
}

}  // namespace lockstep::mpi::detail
