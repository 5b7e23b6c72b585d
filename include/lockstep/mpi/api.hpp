// SPDX-License-Identifier: Apache-2.0
#pragma once

// MPI's C interface, with codes turned into exceptions. The C++ bindings, which some MPIs still
// have, are not standard, and need a library of their own.
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif

#include <lockstep/error.hpp>

#if !__has_include(<mpi.h>)
#error \
    "lockstep/mpi.hpp needs an MPI: find_package(lockstep REQUIRED COMPONENTS mpi), and link lockstep::mpi"
#include <the_compiler_stops_here_since_there_is_no_mpi>
#endif

#include <mpi.h>

#include <cstddef>
#include <string>

namespace lockstep::mpi::detail {

// An Error with MPI's text for a code.
inline Error mpi_error(int code, const char* call) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) length = 0;
  return Error(lockstep::detail::str(call, " failed with code ", code, ": ",
                                     std::string(text, static_cast<std::size_t>(length))));
}

// Throws that Error unless the code means success.
inline void check_mpi(int code, const char* call) {
  if (code != MPI_SUCCESS) [[unlikely]]
    throw mpi_error(code, call);
}

// True if MPI has been finalised and must not be called any more.
inline bool finalized() {
  int finalized = 0;
  return MPI_Finalized(&finalized) == MPI_SUCCESS && finalized != 0;
}
inline void check_not_finalized() {
  check<Error>(!finalized(),
               "MPI has been finalised in this process already: no operation of a "
               "process group may come after MPI_Finalize");
}

}  // namespace lockstep::mpi::detail
