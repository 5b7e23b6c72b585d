// SPDX-License-Identifier: Apache-2.0
#pragma once

// MPI's C interface alone: the C++ bindings, which some MPIs still have, are not in the standard,
// and need a library of their own.
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif

#include <lockstep/config.hpp>

#if !__has_include(<mpi.h>)
#error \
    "lockstep/mpi.hpp needs an MPI: find_package(lockstep REQUIRED COMPONENTS mpi), and link lockstep::mpi"
#include <the_compiler_stops_here_since_there_is_no_mpi>
#endif

#include <mpi.h>
