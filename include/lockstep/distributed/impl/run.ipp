// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/engine/thread_state.hpp>
#include <lockstep/backend/threads/worker_team.hpp>
#include <lockstep/device/cores.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/distributed/default_group.hpp>
#include <lockstep/distributed/group/communication_thread.hpp>
#include <lockstep/distributed/group/group_state.hpp>
#include <lockstep/distributed/group/rank_failure.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/run.hpp>
#include <lockstep/distributed/thread/rendezvous.hpp>
#include <lockstep/distributed/thread/thread_carrier.hpp>
#include <lockstep/distributed/thread/thread_world.hpp>
#include <lockstep/error.hpp>
#include <lockstep/scoped_value.hpp>
#include <lockstep/tensor/random.hpp>

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace lockstep::distributed::detail {

LOCKSTEP_INLINE void run_ranks(const std::vector<Device>& devices,
                               const std::function<void(ProcessGroup)>& fn,
                               const RunOptions& options) {
  check<ValueError>(!devices.empty() && devices.size() <= std::size_t{Rendezvous::kMaxSize},
                    "run: expected 1 to ", Rendezvous::kMaxSize, " devices, got ", devices.size());
  for (const Device device : devices) check_device(device);
  const auto size = static_cast<int>(devices.size());
  const auto world = std::make_shared<ThreadWorld>(size, devices);
  const auto caller = lockstep::detail::ThreadState::capture();
  // Copied before any rank draws.
  std::vector<std::shared_ptr<lockstep::detail::RandomNumbers>> random(devices.size());
  for (auto& numbers : random) numbers = lockstep::detail::copy_random_numbers();
  const auto cores = lockstep::detail::affinity();
  const auto share = [&](std::size_t index) {
    const int rank = static_cast<int>(index);
    // Destroyed after the rank has left: its operations may wait for ranks that wait for this one.
    ProcessGroup group;
    const std::exception_ptr error = lockstep::detail::thrown_by([&] {
      const lockstep::detail::ThreadState::Scope state(caller);
      lockstep::detail::random_override() = random[index];
      std::optional<lockstep::detail::CoreBinding> binding;
      group = ProcessGroup(std::make_shared<GroupState>(
          std::make_unique<ThreadCarrier>(rank, size, world),
          std::make_shared<CommunicationThread>(lockstep::detail::str("communication ", rank)),
          devices[index]));
      const lockstep::detail::ScopedValue current(group_of_thread(), group);
      if (options.bind_to == BindTo::core) binding.emplace(cores, index, devices.size(), "rank");
      fn(group);
      // What the rank has issued ends before the rank leaves.
      group.impl()->thread()->drain();
    });
    world->leave(rank, error);
    if (error) std::rethrow_exception(error);
  };
  throw_first_failure(lockstep::detail::try_run_team(devices.size(), share), devices);
}

}  // namespace lockstep::distributed::detail
