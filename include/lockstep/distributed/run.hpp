// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/distributed/default_group.hpp>
#include <lockstep/distributed/group/rank_failure.hpp>
#include <lockstep/distributed/process_group.hpp>

#include <functional>
#include <utility>
#include <vector>

namespace lockstep::distributed {

// What rank threads are bound to, named as in mpirun's `--bind-to`.
enum class BindTo { none, core };

struct RunOptions {
  // With `core`, each rank and the threads that it starts keep to cores of their own: an equal
  // part, in the system's order, of those that the caller may use (a hyper-thread counts as a
  // core). If there are more ranks than cores, several share one. It pays where steps take
  // microseconds and nothing else wants the cores: otherwise the scheduler may put two ranks on one
  // core.
  BindTo bind_to = BindTo::none;
};

namespace detail {

// `run` for any function: compiled once.
void run_ranks(const std::vector<Device>& devices, const std::function<void(ProcessGroup)>& fn,
               const RunOptions& options);

}  // namespace detail

// Calls fn(group) for all devices at once, each on its own thread, and returns when all have ended.
// Rank r of the group is devices[r], which is its `group.device()`.
//
// Each rank runs as it would in a process of its own; the same function runs under MPI with the
// group of `init_process_group`. Within fn, default_group() is this group.
//
// **Torch counterpart.** torch.multiprocessing.spawn and init_process_group. Ranks are not
// processes here, so they may share models and data.
// **Devices and streams.** A device may be listed more than once. Every rank has the caller's grad
// and inference mode, autocast and current streams, and a copy of its random numbers: on the host
// all ranks draw the same until one of them seeds, and dropout draws by the seed and the device.
// **Threads and exceptions.** Rank 0 is the calling thread; the others run on persistent worker
// threads. Once a rank has thrown, or has returned and its operations have ended, the others'
// operations that need it fail with a RankGone that names it. When all have ended, `run` throws the
// lowest rank's exception as a RankFailure of its own type, which lists the others and nests the
// original. A ValueError for no devices or more than 1024, a DeviceError for one that does not
// exist, an Error if a rank cannot be bound. There is no time limit: ranks that wait for each other
// in a circle, or for one that hangs, wait for ever. A rank must not call std::exit while others
// use a GPU: CUDA's driver shuts down under their calls.
template <class F>
void run(const std::vector<Device>& devices, F&& fn, const RunOptions& options = {}) {
  detail::run_ranks(
      devices, [&fn](ProcessGroup group) { fn(std::move(group)); }, options);
}

}  // namespace lockstep::distributed

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/impl/run.ipp>
#endif
