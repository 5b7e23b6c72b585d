# SPDX-License-Identifier: Apache-2.0

# Finds cblas.h and the library behind it, and defines CBLAS::CBLAS.
#
# LOCKSTEP_BLAS says which one:
#   openblas  OpenBLAS (the default when it is not set)
#   blis      BLIS, built with its CBLAS interface
#   generic   any library that brings a cblas.h, as libcblas or inside libblas
#
# CBLAS_INCLUDE_DIR and CBLAS_LIBRARY may be set to point elsewhere. They belong to the BLAS that
# they were found for and are looked up again when LOCKSTEP_BLAS changes.

if(NOT LOCKSTEP_BLAS)
  set(LOCKSTEP_BLAS openblas)
endif()

# Debian keeps each build of a BLAS in a directory of its own, named by the suffixes.
if(LOCKSTEP_BLAS STREQUAL "openblas")
  set(cblas_names openblas)
  set(cblas_suffixes openblas-pthread openblas)
  set(cblas_package libopenblas-dev)
elseif(LOCKSTEP_BLAS STREQUAL "blis")
  set(cblas_names blis)
  set(cblas_suffixes blis-pthread blis)
  set(cblas_package libblis-dev)
elseif(LOCKSTEP_BLAS STREQUAL "generic")
  set(cblas_names cblas blas)
  set(cblas_suffixes)
  set(cblas_package libblas-dev)
else()
  message(FATAL_ERROR "LOCKSTEP_BLAS is '${LOCKSTEP_BLAS}', not one of openblas, blis, generic")
endif()

if(DEFINED CBLAS_FOUND_FOR AND NOT CBLAS_FOUND_FOR STREQUAL LOCKSTEP_BLAS)
  unset(CBLAS_INCLUDE_DIR CACHE)
  unset(CBLAS_LIBRARY CACHE)
endif()
set(CBLAS_FOUND_FOR "${LOCKSTEP_BLAS}" CACHE INTERNAL "The BLAS that CBLAS_LIBRARY belongs to")

# The header is looked up only if the library is there: another BLAS may have a cblas.h as well.
find_library(CBLAS_LIBRARY NAMES ${cblas_names} PATH_SUFFIXES ${cblas_suffixes})
if(CBLAS_LIBRARY)
  find_path(CBLAS_INCLUDE_DIR NAMES cblas.h PATH_SUFFIXES ${cblas_suffixes})
endif()
mark_as_advanced(CBLAS_INCLUDE_DIR CBLAS_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  CBLAS
  REQUIRED_VARS CBLAS_LIBRARY CBLAS_INCLUDE_DIR
  REASON_FAILURE_MESSAGE
    "LOCKSTEP_BLAS is ${LOCKSTEP_BLAS}, whose package on Debian is ${cblas_package}"
)

if(CBLAS_FOUND AND NOT TARGET CBLAS::CBLAS)
  add_library(CBLAS::CBLAS UNKNOWN IMPORTED)
  set_target_properties(
    CBLAS::CBLAS
    PROPERTIES
      IMPORTED_LOCATION "${CBLAS_LIBRARY}"
      INTERFACE_INCLUDE_DIRECTORIES "${CBLAS_INCLUDE_DIR}"
  )
endif()

unset(cblas_names)
unset(cblas_suffixes)
unset(cblas_package)
