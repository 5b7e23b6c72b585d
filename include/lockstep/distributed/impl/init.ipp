// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/distributed/default_group.hpp>
#include <lockstep/distributed/environment.hpp>
#include <lockstep/distributed/group/communication_thread.hpp>
#include <lockstep/distributed/group/group_state.hpp>
#include <lockstep/distributed/init.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/thread/thread_carrier.hpp>
#include <lockstep/distributed/thread/thread_world.hpp>
#include <lockstep/error.hpp>

#include <atomic>
#include <memory>

namespace lockstep::distributed::detail {

inline ProcessGroup world_of_one() {
  return ProcessGroup(std::make_shared<GroupState>(
      std::make_unique<ThreadCarrier>(0, 1, std::make_shared<ThreadWorld>(1)),
      std::make_shared<CommunicationThread>(), Device()));
}

}  // namespace lockstep::distributed::detail

namespace lockstep::distributed {

LOCKSTEP_INLINE ProcessGroup init_process_group() {
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
  (void)detail::exchange_group_of_process(group);
  return group;
}

LOCKSTEP_INLINE void destroy_process_group() { (void)detail::exchange_group_of_process({}); }

}  // namespace lockstep::distributed
