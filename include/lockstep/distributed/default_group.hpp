// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/process_group.hpp>
#include <lockstep/error.hpp>

#include <mutex>
#include <utility>

namespace lockstep::distributed {

namespace detail {

// The group of the rank that the calling thread is, within `run`; the thread alone uses it.
inline ProcessGroup& group_of_thread() {
  thread_local ProcessGroup group;
  return group;
}

class GroupOfThreadScope {
 public:
  explicit GroupOfThreadScope(ProcessGroup group)
      : before_(std::exchange(group_of_thread(), std::move(group))) {}
  GroupOfThreadScope(const GroupOfThreadScope&) = delete;
  GroupOfThreadScope& operator=(const GroupOfThreadScope&) = delete;
  ~GroupOfThreadScope() { group_of_thread() = std::move(before_); }

 private:
  ProcessGroup before_;
};

// The group of the process: what init_process_group made. Never destroyed.
struct GroupOfProcess {
  std::mutex mutex;  // guards `group`
  ProcessGroup group;

  static GroupOfProcess& instance() {
    static GroupOfProcess& state = *new GroupOfProcess;
    return state;
  }
};

inline ProcessGroup default_group_or_none() {
  if (group_of_thread()) return group_of_thread();
  GroupOfProcess& process = GroupOfProcess::instance();
  const std::lock_guard lock(process.mutex);
  return process.group;
}

}  // namespace detail

// True within `run`, and after init_process_group.
//
// **Torch counterpart.** torch.distributed.is_initialized.
inline bool is_initialized() { return detail::default_group_or_none().defined(); }

// The group of all ranks: on a thread of `run` that one's, elsewhere that of init_process_group. An
// Error if there is none.
//
// **Torch counterpart.** torch.distributed.group.WORLD.
inline ProcessGroup default_group() {
  ProcessGroup group = detail::default_group_or_none();
  check<Error>(group.defined(),
               "the default process group has not been initialized: call "
               "distributed::init_process_group first, or be within distributed::run");
  return group;
}

// **Torch counterpart.** torch.distributed.get_rank and get_world_size.
inline int get_rank() { return default_group().rank(); }
inline int get_world_size() { return default_group().size(); }

}  // namespace lockstep::distributed
