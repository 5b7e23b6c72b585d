// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <string>

namespace lockstep::distributed {

// How the launcher of this process has placed it among others.
struct LaunchEnvironment {
  std::string launcher;  // whose variables these are; empty where there are none
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;  // among the processes of this machine
  std::string master_addr;
  int master_port = 0;  // 0 where none is given
};

// Reads this process's place among others from the environment: RANK, WORLD_SIZE and LOCAL_RANK, as
// torchrun sets them, else the variables of Open MPI, MPICH or Slurm, else a world of one; and in
// each case MASTER_ADDR and MASTER_PORT.
//
// **Torch counterpart.** The env:// initialisation of torch.distributed.
// **Threads and exceptions.** ValueError for a variable that is no number or out of range, and for
// a rank without a world size or the other way round; but Slurm gives the process of a batch script
// a rank alone, and that is a world of one.
LaunchEnvironment launch_environment();

}  // namespace lockstep::distributed

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/impl/environment.ipp>
#endif
