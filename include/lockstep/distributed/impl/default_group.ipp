// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/default_group.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/error.hpp>
#include <lockstep/never_destroyed.hpp>

#include <mutex>
#include <utility>

namespace lockstep::distributed::detail {

LOCKSTEP_INLINE ProcessGroup& group_of_thread() {
  thread_local ProcessGroup group;
  return group;
}

struct GroupOfProcess {
  std::mutex mutex;  // guards `group`
  ProcessGroup group;
};

LOCKSTEP_INLINE ProcessGroup exchange_group_of_process(ProcessGroup group) {
  auto& process = lockstep::detail::never_destroyed<GroupOfProcess>();
  const std::lock_guard lock(process.mutex);
  return std::exchange(process.group, std::move(group));
}

LOCKSTEP_INLINE ProcessGroup default_group_or_none() {
  if (group_of_thread()) return group_of_thread();
  auto& process = lockstep::detail::never_destroyed<GroupOfProcess>();
  const std::lock_guard lock(process.mutex);
  return process.group;
}

}  // namespace lockstep::distributed::detail

namespace lockstep::distributed {

LOCKSTEP_INLINE ProcessGroup default_group() {
  ProcessGroup group = detail::default_group_or_none();
  check<Error>(
      group.defined(),
      "the default process group has not been initialized: call "
      "distributed::init_process_group first, or distributed::run, in which only the ranks' "
      "own threads have one");
  return group;
}

}  // namespace lockstep::distributed
