# SPDX-License-Identifier: Apache-2.0

# Defines lockstep::mpi: lockstep linked with an MPI. One file of the program includes lockstep/mpi.hpp.
# CMake's FindMPI chooses the MPI. If several are installed, MPI_CXX_COMPILER selects one (mpicxx.openmpi
# or mpicxx.mpich).

set(MPI_CXX_SKIP_MPICXX ON)  # the C interface alone
if(NOT DEFINED lockstep_need)
  set(lockstep_need REQUIRED)
endif()
find_package(MPI ${lockstep_need} COMPONENTS CXX)

if(MPI_CXX_FOUND AND NOT TARGET lockstep::mpi)
  add_library(lockstep::mpi INTERFACE IMPORTED GLOBAL)
  target_link_libraries(lockstep::mpi INTERFACE lockstep::lockstep MPI::MPI_CXX)
endif()
