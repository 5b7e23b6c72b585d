// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/mpi/api.hpp>

#include <cstddef>
#include <string>

namespace lockstep::mpi::detail {

// The Error with MPI's text for a code.
inline Error mpi_error(int code, const char* call) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) length = 0;
  return Error(lockstep::detail::str(call, " failed with code ", code, ": ",
                                     std::string(text, static_cast<std::size_t>(length))));
}

// Throws that Error, unless the code is success.
inline void check_mpi(int code, const char* call) {
  if (code != MPI_SUCCESS) [[unlikely]]
    throw mpi_error(code, call);
}

}  // namespace lockstep::mpi::detail
