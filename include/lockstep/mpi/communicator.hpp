// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/distributed/watchdog/watchdog.hpp>
#include <lockstep/mpi/api.hpp>
#include <lockstep/mpi/requests.hpp>

#include <array>
#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

namespace lockstep::mpi::detail {

inline int size_of(MPI_Comm comm) {
  int size = 0;
  check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  return size;
}

inline int rank_in(MPI_Comm comm) {
  int rank = 0;
  check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  return rank;
}

// True if the communicator connects two groups of processes.
inline bool is_intercommunicator(MPI_Comm comm) {
  int result = 0;
  check_mpi(MPI_Comm_test_inter(comm, &result), "MPI_Comm_test_inter");
  return result != 0;
}

// True if the communicator has exactly the processes of MPI_COMM_WORLD.
inline bool has_all_processes(MPI_Comm comm) {
  int result = MPI_UNEQUAL;
  check_mpi(MPI_Comm_compare(comm, MPI_COMM_WORLD, &result), "MPI_Comm_compare");
  return result != MPI_UNEQUAL;
}

// Makes another communicator of the same processes, which all call this between operations.
// Lockstep allocates nothing for it. It returns errors.
inline MPI_Comm duplicate(MPI_Comm comm, const distributed::Watchdog* watchdog) {
  static MPI_Comm copy;  // not on the stack: see `complete`
  complete("MPI_Comm_idup", watchdog,
           [&](MPI_Request* request) { return MPI_Comm_idup(comm, &copy, request); });
  check_mpi(MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return copy;
}

// The minimum over the processes of the communicator, for each of several numbers. All of them call
// it between operations. Lockstep allocates nothing for it.
template <std::size_t N>
std::array<int, N> least_of_all(const std::array<int, N>& own, MPI_Comm comm,
                                const distributed::Watchdog* watchdog) {
  static std::array<int, N> least;  // not on the stack: see `complete`
  least = own;
  complete("MPI_Iallreduce", watchdog, [&](MPI_Request* request) {
    return MPI_Iallreduce(MPI_IN_PLACE, least.data(), static_cast<int>(N), MPI_INT, MPI_MIN, comm,
                          request);
  });
  return least;
}

// Makes a communicator of the members, in the order listed; MPI_COMM_NULL on other ranks. It
// returns errors.
//
// All ranks must call it, or MPI waits for ever: MPI, up to version 4, has no call for this that
// does not block (MPI_Comm_idup keeps the ranks and their order). So the ranks meet first, in a
// wait that ends when one of them fails (Requests::meet_to_block). This call then hangs only if a
// process dies, or two ranks fail, after that meeting.
inline MPI_Comm part_of(MPI_Comm comm, std::span<const int> members, int rank) {
  const auto at = lockstep::detail::find(members, rank);
  MPI_Comm part = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(comm, at == members.end() ? MPI_UNDEFINED : 0,
                           static_cast<int>(at - members.begin()), &part),
            "MPI_Comm_split");
  if (part != MPI_COMM_NULL) {
    check_mpi(MPI_Comm_set_errhandler(part, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  return part;
}

// The ranks in MPI_COMM_WORLD of a communicator's processes.
inline std::vector<int> world_ranks(MPI_Comm comm) {
  std::vector<int> own(static_cast<std::size_t>(size_of(comm)));
  std::vector<int> ranks(own.size());
  std::iota(own.begin(), own.end(), 0);
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Group world = MPI_GROUP_NULL;
  check_mpi(MPI_Comm_group(comm, &group), "MPI_Comm_group");
  check_mpi(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
  const int code = MPI_Group_translate_ranks(group, static_cast<int>(own.size()), own.data(), world,
                                             ranks.data());
  MPI_Group_free(&group);
  MPI_Group_free(&world);
  check_mpi(code, "MPI_Group_translate_ranks");
  return ranks;
}

}  // namespace lockstep::mpi::detail
