// SPDX-License-Identifier: Apache-2.0
#pragma once

// MPI for distributed::init_process_group: groups of processes on CPUs. One file of a program
// includes this header, and the program links lockstep::mpi; mpirun or srun starts it. Any MPI of
// version 3 does. Nothing of it is called before its first use.

#include <lockstep/device/device.hpp>
#include <lockstep/distributed/environment.hpp>
#include <lockstep/distributed/group_state.hpp>
#include <lockstep/distributed/init.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/error.hpp>
#include <lockstep/mpi/api.hpp>
#include <lockstep/mpi/mpi_carrier.hpp>
#include <lockstep/mpi/runtime.hpp>

#include <atomic>
#include <memory>
#include <utility>

namespace lockstep::mpi {

// A group of the processes of a communicator, which is duplicated. All of its processes call it.
//
// MPI is initialised if the program has not done so, with MPI_THREAD_SERIALIZED, and then finalised
// when the process exits; a process that exits with another status than 0 ends the others, which
// may be waiting for it. With LOCKSTEP_DISTRIBUTED_DEBUG=DETAIL in the environment of any process,
// calls that do not match are an error on all ranks, at the price of one more small exchange each;
// without it what happens then is MPI's to say, as a rule a hang.
//
// **Threads and exceptions.** One thread communicates, for all groups together. The program's own
// calls of MPI must not run beside it: either none while operations are in flight, or initialise
// MPI with MPI_THREAD_MULTIPLE beforehand. Failures of MPI are Errors with its text.
inline distributed::ProcessGroup process_group(MPI_Comm comm = MPI_COMM_NULL) {
  detail::Runtime& runtime = detail::Runtime::instance();
  std::unique_ptr<detail::MpiCarrier> carrier;
  runtime.thread()->between_operations([&] {
    MPI_Comm own = MPI_COMM_NULL;
    detail::check_mpi(MPI_Comm_dup(comm == MPI_COMM_NULL ? MPI_COMM_WORLD : comm, &own),
                      "MPI_Comm_dup");
    int compares = detail::debug_detail() ? 1 : 0;
    detail::check_mpi(MPI_Allreduce(MPI_IN_PLACE, &compares, 1, MPI_INT, MPI_MAX, own),
                      "MPI_Allreduce");
    carrier = std::make_unique<detail::MpiCarrier>(own, compares != 0);
  });
  return distributed::ProcessGroup(std::make_shared<distributed::detail::GroupState>(
      std::move(carrier), runtime.thread(), Device()));
}

namespace detail {

inline distributed::ProcessGroup make_world(const distributed::LaunchEnvironment& environment) {
  distributed::ProcessGroup world = process_group();
  check<Error>(world.rank() == environment.rank && world.size() == environment.world_size,
               "init_process_group: the environment (", environment.launcher, ") says rank ",
               environment.rank, " of ", environment.world_size, ", but MPI says rank ",
               world.rank(), " of ", world.size(),
               ": start the program with the mpirun of the MPI that it was linked with");
  return world;
}

inline bool register_mpi() {
  distributed::detail::make_mpi_world.store(make_world, std::memory_order_release);
  return true;
}

inline const bool registered = register_mpi();

}  // namespace detail

}  // namespace lockstep::mpi
