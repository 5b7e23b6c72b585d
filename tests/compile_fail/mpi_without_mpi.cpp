// expect: lockstep/mpi.hpp needs an MPI: find_package.lockstep REQUIRED COMPONENTS mpi.
// SPDX-License-Identifier: Apache-2.0
#ifdef LOCKSTEP_CONTROL
#include <lockstep/error.hpp>
#else
#include <lockstep/mpi.hpp>
#endif

int main() {}
