// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/distributed/environment.hpp>
#include <lockstep/distributed/process_group.hpp>

#include <atomic>

namespace lockstep::distributed {

namespace detail {

// Makes the group of all processes. lockstep/mpi.hpp puts its function here before `main`.
using MakeWorld = ProcessGroup (*)(const LaunchEnvironment&);
inline constinit std::atomic<MakeWorld> make_mpi_world{nullptr};

}  // namespace detail

// Makes the group of all processes that were launched together, the default one from here on, and
// returns it. Every process calls it.
//
// Processes are connected by MPI, for which one file of the program includes lockstep/mpi.hpp. A
// process that no launcher started (see launch_environment) is a world of one and needs nothing.
//
// **Torch counterpart.** torch.distributed.init_process_group.
// **Threads and exceptions.** One thread calls it. An Error if there is a default group already, as
// within `run`, or if there are other processes but no way to reach them. Processes watch each
// other from here on: see mpi::process_group for what happens when one fails.
ProcessGroup init_process_group();

// Gives up the group of init_process_group; its handles elsewhere stay good. Does nothing if there
// is none; that of `run` ends by itself.
//
// **Torch counterpart.** torch.distributed.destroy_process_group.
void destroy_process_group();

}  // namespace lockstep::distributed

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/impl/init.ipp>
#endif
