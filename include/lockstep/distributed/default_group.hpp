// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/distributed/process_group.hpp>

namespace lockstep::distributed {

namespace detail {

// The group of the rank that runs on the calling thread; undefined outside `run`. Each thread has
// its own.
ProcessGroup& group_of_thread();

// Sets the group of the process and returns the one before. Any thread may call it.
ProcessGroup exchange_group_of_process(ProcessGroup group);

ProcessGroup default_group_or_none();

}  // namespace detail

// True within `run` and after init_process_group.
//
// **Torch counterpart.** torch.distributed.is_initialized.
inline bool is_initialized() { return detail::default_group_or_none().defined(); }

// The group of all ranks: within `run` the group of that call, elsewhere that of
// init_process_group. An Error if there is none.
//
// **Torch counterpart.** torch.distributed.group.WORLD.
ProcessGroup default_group();

// This rank's number in the default group, and that group's size. An Error if there is none.
//
// **Torch counterpart.** torch.distributed.get_rank and get_world_size.
inline int get_rank() { return default_group().rank(); }
inline int get_world_size() { return default_group().size(); }

}  // namespace lockstep::distributed

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/impl/default_group.ipp>
#endif
