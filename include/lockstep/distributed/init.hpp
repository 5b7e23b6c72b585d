// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/distributed/communication_thread.hpp>
#include <lockstep/distributed/default_group.hpp>
#include <lockstep/distributed/environment.hpp>
#include <lockstep/distributed/group_state.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/thread_carrier.hpp>
#include <lockstep/distributed/thread_world.hpp>
#include <lockstep/error.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

namespace lockstep::distributed {

namespace detail {

// Makes the group of all processes. lockstep/mpi.hpp puts its function here before `main`.
using MakeWorld = ProcessGroup (*)(const LaunchEnvironment&);
inline constinit std::atomic<MakeWorld> make_mpi_world{nullptr};

inline ProcessGroup world_of_one() {
  return ProcessGroup(std::make_shared<GroupState>(
      std::make_unique<ThreadCarrier>(0, 1, std::make_shared<ThreadWorld>(1)),
      std::make_shared<CommunicationThread>(), Device()));
}

}  // namespace detail

// Makes the group of all processes that were launched together, the default one from here on, and
// returns it. Every process calls it.
//
// Processes are connected by MPI, for which one file of the program includes lockstep/mpi.hpp. A
// process that no launcher started (see launch_environment) is a world of one and needs nothing.
//
// **Torch counterpart.** torch.distributed.init_process_group.
// **Threads and exceptions.** An Error if there is a default group already, or if there are other
// processes but no way to reach them. Processes watch each other from here on: see
// mpi::process_group for what happens when one fails.
inline ProcessGroup init_process_group() {
  check<Error>(!is_initialized(),
               "init_process_group: the default process group has been "
               "initialized already");
  const LaunchEnvironment environment = launch_environment();
  const detail::MakeWorld mpi = detail::make_mpi_world.load(std::memory_order_acquire);
  check<Error>(mpi || environment.world_size == 1, "init_process_group: this is rank ",
               environment.rank, " of ", environment.world_size, ", says the environment (",
               environment.launcher,
               "), but nothing in the program connects processes: include lockstep/mpi.hpp in one "
               "file and link lockstep::mpi");
  ProcessGroup group =
      environment.launcher.empty() || !mpi ? detail::world_of_one() : mpi(environment);
  detail::GroupOfProcess& process = detail::GroupOfProcess::instance();
  const std::lock_guard lock(process.mutex);
  process.group = group;
  return group;
}

// Gives up the default group; its handles elsewhere stay good. Does nothing if there is none.
//
// **Torch counterpart.** torch.distributed.destroy_process_group.
inline void destroy_process_group() {
  ProcessGroup group;  // ends outside of the lock
  detail::GroupOfProcess& process = detail::GroupOfProcess::instance();
  const std::lock_guard lock(process.mutex);
  std::swap(group, process.group);
}

}  // namespace lockstep::distributed
