// SPDX-License-Identifier: Apache-2.0
#pragma once

// MPI's C interface alone: the C++ bindings that some MPIs still have are no part of the standard
// any more, and need a library of their own.
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif

#include <mpi.h>
