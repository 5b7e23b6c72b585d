// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/distributed/environment.hpp>
#include <lockstep/distributed/process_group.hpp>

#include <atomic>

namespace lockstep::distributed {

namespace detail {

// Makes the group of all processes. lockstep/mpi.hpp stores its function here before `main`.
using MakeWorld = ProcessGroup (*)(const LaunchEnvironment&);
inline constinit std::atomic<MakeWorld> make_mpi_world{nullptr};

}  // namespace detail

// Makes the group of all processes that were launched together, makes it the default group and
// returns it. Every process calls it.
//
// MPI connects the processes; one file of the program includes lockstep/mpi.hpp for that. A process
// that no launcher started (see launch_environment) is a world of one and needs nothing.
//
// **Torch counterpart.** torch.distributed.init_process_group.
// **Threads and exceptions.** One thread calls it. An Error if there is a default group already, as
// within `run`, or if nothing connects the processes. From here on the processes watch each other:
// see mpi::process_group for what happens when one fails.
ProcessGroup init_process_group();

// Ends init_process_group's group as the default; other handles on it stay valid. Does nothing if
// there is none, or to the group of `run`.
//
// **Torch counterpart.** torch.distributed.destroy_process_group.
void destroy_process_group();

}  // namespace lockstep::distributed

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/impl/init.ipp>
#endif
