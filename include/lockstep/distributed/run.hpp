// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/thread_state.hpp>
#include <lockstep/backend/worker_team.hpp>
#include <lockstep/device/cores.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/distributed/communication_thread.hpp>
#include <lockstep/distributed/default_group.hpp>
#include <lockstep/distributed/group_state.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/rank_failure.hpp>
#include <lockstep/distributed/rendezvous.hpp>
#include <lockstep/distributed/thread_carrier.hpp>
#include <lockstep/distributed/thread_world.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/random.hpp>

#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep::distributed {

namespace detail {

inline ProcessGroup thread_group(int rank, const std::vector<Device>& devices,
                                 const std::shared_ptr<ThreadWorld>& world) {
  const int size = static_cast<int>(devices.size());
  return ProcessGroup(std::make_shared<GroupState>(
      std::make_unique<ThreadCarrier>(rank, size, world),
      std::make_shared<CommunicationThread>(lockstep::detail::str("communication ", rank)),
      devices[static_cast<std::size_t>(rank)]));
}

}  // namespace detail

// What rank threads are bound to. The names are those of mpirun's `--bind-to`.
enum class BindTo { none, core };

struct RunOptions {
  // With `core`, each rank keeps to cores of its own for as long as it runs: an equal part, in the
  // system's order, of those that the caller may use (a hyper-thread counts as a core). The threads
  // that it starts share them, as those of a process do. It pays where steps take microseconds and
  // nothing else wants the cores: a scheduler may leave two ranks on one of them.
  BindTo bind_to = BindTo::none;
};

// Calls fn(group) for each device at once, each on a thread of its own: rank r of the group is
// devices[r], and `group.device()` says so. Returns when all have ended.
//
// Each rank is its own program, as it would be in a process of its own; the same function runs
// under MPI with the group of `init_process_group`. Within fn, default_group() is this group.
//
// **Torch counterpart.** torch.multiprocessing.spawn and init_process_group; there are no processes
// here, so models and data may be shared.
// **Devices and streams.** A device may be listed more than once. Every rank sees the caller's
// state: grad and inference mode, autocast and current streams. It draws random numbers of its own,
// which go on where the caller's are: the same on all ranks, until one of them seeds.
// **Threads and exceptions.** Persistent worker threads; rank 0 is the calling thread. When a rank
// throws, the others' operations that need it fail with a RankGone that names it; so they do when
// it has returned. An Error where a rank cannot be bound. Once all have ended, the lowest rank's
// exception is thrown as a RankFailure of its own type, with the others listed and the original
// nested.
template <class F>
void run(const std::vector<Device>& devices, F&& fn, const RunOptions& options = {}) {
  check<ValueError>(!devices.empty() && devices.size() <= std::size_t{detail::Rendezvous::kMaxSize},
                    "run: expected 1 to ", detail::Rendezvous::kMaxSize, " devices, got ",
                    devices.size());
  for (const Device device : devices) check_device(device);
  const auto world =
      std::make_shared<detail::ThreadWorld>(static_cast<int>(devices.size()), devices);
  const auto caller = lockstep::detail::ThreadState::capture();
  // Before any rank draws.
  std::vector<std::shared_ptr<lockstep::detail::RandomNumbers>> random(devices.size());
  for (auto& numbers : random) numbers = lockstep::detail::copy_random_numbers();
  const auto cores = lockstep::detail::affinity();
  const auto share = [&](std::size_t index) {
    const int rank = static_cast<int>(index);
    // Ends after the rank has left: what it has issued may wait for ranks that wait for this one.
    ProcessGroup group;
    try {
      const lockstep::detail::ThreadState::Scope state(caller);
      lockstep::detail::random_override() = random[index];
      std::optional<lockstep::detail::CoreBinding> binding;
      group = detail::thread_group(rank, devices, world);
      const detail::GroupOfThreadScope current(group);
      if (options.bind_to == BindTo::core) binding.emplace(cores, index, devices.size(), "rank");
      fn(ProcessGroup(group));
      // What the rank has issued comes before its end.
      group.impl()->thread()->drain();
    } catch (...) {
      world->leave(rank, std::current_exception());
      throw;
    }
    world->leave(rank, nullptr);
  };
  detail::throw_first_failure(lockstep::detail::try_run_team(devices.size(), share), devices);
}

}  // namespace lockstep::distributed
