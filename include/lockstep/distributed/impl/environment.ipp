// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/environment.hpp>
#include <lockstep/error.hpp>
#include <lockstep/number_in_text.hpp>

#include <cstdlib>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::distributed::detail {

// The variable as a number in [lowest, highest]; nothing if it is not set.
inline std::optional<int> number_in_environment(const char* variable, int lowest,
                                                int highest = std::numeric_limits<int>::max()) {
  const char* text = std::getenv(variable);
  if (!text) return std::nullopt;
  const auto number = lockstep::detail::number_in<int>(text);
  check<ValueError>(number && *number >= lowest && *number <= highest, variable, " is \"", text,
                    "\": expected a number from ", lowest, " to ", highest);
  return number;
}

// The names of one launcher's variables.
struct LaunchVariables {
  const char* launcher;
  const char* rank;
  const char* world_size;
  const char* local_rank;
  bool rank_without_size = false;  // a process that runs alone may have a rank
};

inline constexpr LaunchVariables kLaunchVariables[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
    // Not SLURM_NTASKS, which the batch script itself has as well, like SLURM_PROCID.
    {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", true},
};

// Throws because only one of the launcher's rank and world size is set.
[[noreturn]] inline void fail_incomplete(const LaunchVariables& names) {
  std::vector<const char*> all = {names.rank, names.world_size, names.local_rank};
  if (&names == kLaunchVariables) {  // torchrun's
    all.insert(all.end(), {"MASTER_ADDR", "MASTER_PORT"});
  }
  std::string set;
  std::string missing;
  for (const char* const name : all) {
    std::string& list = std::getenv(name) ? set : missing;
    list += (list.empty() ? "" : ", ") + std::string(name);
  }
  lockstep::detail::fail<ValueError>(
      "environment variable ", std::getenv(names.rank) ? names.world_size : names.rank,
      " expected, but not set. Of ", names.launcher, "'s there is ", set, ", but not ", missing,
      ": unset what is left of another run, or set the others");
}

}  // namespace lockstep::distributed::detail

namespace lockstep::distributed {

LOCKSTEP_INLINE LaunchEnvironment launch_environment() {
  LaunchEnvironment result;
  for (const detail::LaunchVariables& names : detail::kLaunchVariables) {
    const std::optional<int> size = detail::number_in_environment(names.world_size, 1);
    const std::optional<int> rank = detail::number_in_environment(
        names.rank, 0, size ? *size - 1 : std::numeric_limits<int>::max());
    if (!size && (!rank || names.rank_without_size)) continue;
    if (!size || !rank) detail::fail_incomplete(names);
    result.launcher = names.launcher;
    result.rank = *rank;
    result.world_size = *size;
    result.local_rank = detail::number_in_environment(names.local_rank, 0).value_or(0);
    break;
  }
  if (const char* address = std::getenv("MASTER_ADDR")) result.master_addr = address;
  result.master_port = detail::number_in_environment("MASTER_PORT", 1, 65535).value_or(0);
  return result;
}

}  // namespace lockstep::distributed
