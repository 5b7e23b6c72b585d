// SPDX-License-Identifier: Apache-2.0

// Connects the processes that mpirun has started: the one file of a program that knows MPI.
#include <lockstep/mpi.hpp>
