// SPDX-License-Identifier: Apache-2.0
#pragma once

// MPI for distributed::init_process_group: groups of processes on CPUs. One file of a program
// includes this header, the program links lockstep::mpi, and mpirun or srun starts it. Any MPI of
// version 3 will do. The library makes no MPI call before its first use.

#include <lockstep/device/device.hpp>
#include <lockstep/distributed/environment.hpp>
#include <lockstep/distributed/group/carrier.hpp>
#include <lockstep/distributed/group/group_state.hpp>
#include <lockstep/distributed/group/group_watch.hpp>
#include <lockstep/distributed/group/rank_failure.hpp>
#include <lockstep/distributed/init.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/error.hpp>
#include <lockstep/mpi/api.hpp>
#include <lockstep/mpi/communicator.hpp>
#include <lockstep/mpi/mpi_carrier.hpp>
#include <lockstep/mpi/runtime.hpp>

#include <array>
#include <atomic>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep::mpi {

// Makes a group of a communicator's processes, all of which call it. It duplicates the
// communicator, and first waits until the collectives that this rank has issued have ended. For
// MPI_COMM_NULL, which MPI_Comm_split gives to ranks that it leaves out, the group is undefined.
//
// MPI is initialised, with MPI_THREAD_SERIALIZED, if the program has not done so, and is then
// finalised when the process exits. If the program finalises it, later operations that need MPI are
// an Error, but handles may still be destroyed. If any process has
// LOCKSTEP_DISTRIBUTED_DEBUG=DETAIL in its environment, or if there are more than 16 ranks, the
// ranks compare their calls, by one more small exchange for each, and calls that do not match are
// an error on all of them.
//
// The first group of all processes, such as init_process_group's, starts a Watchdog. If a rank
// dies, stops, ends with an exception or a status other than 0, or does not come to a collective,
// everything that the others have in flight, or issue later, in any group fails with a
// WatchdogError that names the rank. The memory of what was in flight is never freed. The process
// then ends without MPI_Finalize, which would wait for the missing rank; its exit status is the
// program's own, or 1 if that would be 0 although the program has not caught the error. Most
// launchers kill the other processes at once when one fails, before they can report the error; Open
// MPI's mpirun does not with --enable-recovery, and returns 0 then, nor MPICH's with
// -disable-auto-cleanup. WatchdogOptions says how to set the time limits, and LOCKSTEP_WATCHDOG=0
// switches the watchdog off; only rank 0 reads both.
//
// **Torch counterpart.** torch.distributed.init_process_group and new_group of the backend "mpi".
// **Threads and exceptions.** One thread communicates, for all groups together. A program that
// makes MPI calls of its own either initialises MPI with MPI_THREAD_MULTIPLE, or makes none while
// operations are in flight or a group ends. A group ends shortly after its last handle has gone,
// and before the next collective of another group completes; MPI_Finalize waits for it. A failure
// of MPI is an Error with MPI's text; an intercommunicator, or a LOCKSTEP_DISTRIBUTED_DEBUG other
// than DETAIL, INFO and OFF, is a ValueError. If one process cannot make the group, for example for
// lack of memory, the others get an Error that names its rank, at once or from the group's first
// operation.
//
// ProcessGroup::new_group of other ranks, or in another order, needs MPI_Comm_split, which blocks
// until all have come. The ranks meet before it, so a rank that does not come is an error as in any
// collective. Only if a process dies between that meeting and MPI_Comm_split, or MPI fails on two
// ranks at once, do the others hang there.
inline distributed::ProcessGroup process_group(MPI_Comm comm = MPI_COMM_WORLD) {
  detail::Runtime& runtime = detail::Runtime::instance();
  detail::check_not_finalized();
  if (comm == MPI_COMM_NULL) return {};
  std::shared_ptr<distributed::detail::GroupState> state;
  // After all that this rank has issued, which the others may need before they come here.
  runtime.thread()->drain();
  runtime.thread()->between_operations([&] {
    check<ValueError>(!detail::is_intercommunicator(comm),
                      "process_group: expected a communicator of one group of processes, got an "
                      "intercommunicator: MPI_Intercomm_merge makes one of its two groups");
    if (detail::has_all_processes(comm)) runtime.watch();
    const int rank = detail::rank_in(comm);
    const int size = detail::size_of(comm);
    std::unique_ptr<distributed::detail::Carrier> carrier;
    detail::MpiCarrier* connects = nullptr;
    std::vector<int> ranks;
    bool compares = false;
    const std::exception_ptr error = lockstep::detail::thrown_by([&] {
      compares = detail::debug_detail();
      ranks = detail::world_ranks(comm);
      carrier.reset(connects = new detail::MpiCarrier(rank, size, runtime.watchdog()));
    });
    // All ranks must come here, whatever has failed, or the others would wait for ever.
    MPI_Comm own = detail::duplicate(comm, runtime.watchdog().get());
    const auto [plain, failed] = detail::least_of_all(
        std::array{compares ? 0 : 1, error ? rank : size}, own, runtime.watchdog().get());
    if (failed < size) MPI_Comm_free(&own);
    if (error) std::rethrow_exception(error);
    check<distributed::RankGone>(failed == size, "process_group on rank ", rank, ": rank ", failed,
                                 " has failed to make it");
    connects->connect(own, plain == 0);
    carrier->or_leave([&] {
      distributed::detail::GroupWatch watch(runtime.watchdog(), std::move(ranks));
      state = std::make_shared<distributed::detail::GroupState>(
          std::move(carrier), runtime.thread(), Device(), std::move(watch));
    });
  });
  return distributed::ProcessGroup(std::move(state));
}

namespace detail {

inline distributed::ProcessGroup make_world(const distributed::LaunchEnvironment& environment) {
  distributed::ProcessGroup world = process_group();
  check<Error>(world.rank() == environment.rank && world.size() == environment.world_size,
               "init_process_group: the environment (", environment.launcher, ") says rank ",
               environment.rank, " of ", environment.world_size, ", but MPI says rank ",
               world.rank(), " of ", world.size(),
               ": start the program with the mpirun of the MPI that it was linked with",
               environment.launcher == "torchrun"
                   ? ", and unset RANK and WORLD_SIZE where they are left of another run"
                   : "");
  return world;
}

inline const bool registered = [] {
  distributed::detail::make_mpi_world.store(make_world, std::memory_order_release);
  return true;
}();

}  // namespace detail

}  // namespace lockstep::mpi
