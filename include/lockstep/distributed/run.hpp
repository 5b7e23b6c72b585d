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

// What rank threads are bound to. The names are those of mpirun's `--bind-to`.
enum class BindTo { none, core };

struct RunOptions {
  // With `core`, each rank keeps to cores of its own for as long as it runs: an equal part, in the
  // system's order, of those that the caller may use (a hyper-thread counts as a core); where there
  // are more ranks, several keep to one core. The threads that it starts share them, as those of a
  // process do. It pays where steps take microseconds and nothing else wants the cores: a scheduler
  // may leave two ranks on one of them.
  BindTo bind_to = BindTo::none;
};

namespace detail {

// `run` for any function: compiled once.
void run_ranks(const std::vector<Device>& devices, const std::function<void(ProcessGroup)>& fn,
               const RunOptions& options);

}  // namespace detail

// Calls fn(group) for each device at once, each on a thread of its own: rank r of the group is
// devices[r], and `group.device()` says so. Returns when all have ended.
//
// Each rank is its own program, as it would be in a process of its own; the same function runs
// under MPI with the group of `init_process_group`. Within fn, default_group() is this group.
//
// **Torch counterpart.** torch.multiprocessing.spawn and init_process_group; there are no processes
// here, so models and data may be shared.
// **Devices and streams.** A device may be listed more than once. Every rank sees the caller's
// state: grad and inference mode, autocast and current streams. Each rank has a copy of the
// caller's random numbers: until one of them seeds, all draw the same on the host, and dropout
// draws by the seed and the device.
// **Threads and exceptions.** Persistent worker threads; rank 0 is the calling thread. When a rank
// has thrown, or has returned and all that it had issued has ended, the others' operations that
// need it fail with a RankGone that names it. There is no time limit, since nothing watches ranks
// that are threads: those that wait for each other in a circle, or for one that hangs, wait for
// ever, and `run` with them. Once all have ended, the lowest rank's exception is thrown as a
// RankFailure of its own type, with the others listed and the original nested. A ValueError for no
// devices or more than 1024, a DeviceError for one that does not exist, an Error if a rank cannot
// be bound. The program may end in a rank, but not by std::exit while others use a GPU: CUDA's
// driver takes itself apart under their calls.
template <class F>
void run(const std::vector<Device>& devices, F&& fn, const RunOptions& options = {}) {
  detail::run_ranks(
      devices, [&fn](ProcessGroup group) { fn(std::move(group)); }, options);
}

}  // namespace lockstep::distributed

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/impl/run.ipp>
#endif
