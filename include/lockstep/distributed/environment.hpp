// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <string>

namespace lockstep::distributed {

// The place of this process among those that its launcher started.
struct LaunchEnvironment {
  std::string launcher;  // the one whose variables were read; empty if there are none
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;  // among the processes of this machine
  std::string master_addr;
  int master_port = 0;  // 0 if none is given
};

// Reads the place of this process from the environment: RANK, WORLD_SIZE and LOCAL_RANK, as
// torchrun sets them, else the variables of Open MPI, MPICH or Slurm, else a world of one.
// MASTER_ADDR and MASTER_PORT are read in each case.
//
// **Torch counterpart.** The env:// initialisation of torch.distributed.
// **Threads and exceptions.** A ValueError for a variable that is not a number or is out of range,
// and for a rank without a world size or the reverse. A Slurm batch script has a rank without a
// size; that is a world of one.
LaunchEnvironment launch_environment();

}  // namespace lockstep::distributed

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/impl/environment.ipp>
#endif
