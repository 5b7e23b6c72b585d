# SPDX-License-Identifier: Apache-2.0

# Finds nccl.h and libnccl, and defines NCCL::NCCL.
#
# Looked for below NCCL_ROOT, the environment's NCCL_HOME and the prefix of the CUDA toolkit in use
# (that of CMAKE_CUDA_COMPILER, LOCKSTEP_NVCC, find_package(CUDAToolkit), CUDA_HOME, CUDA_PATH or
# /usr/local/cuda), and beside that prefix, where PyPI's wheels put it: nvidia/nccl next to
# nvidia/cu13. A wheel has only libnccl.so.2, not the name that linkers look for.
#
# NCCL_INCLUDE_DIR and NCCL_LIBRARY may be set to point elsewhere.

set(nccl_hints ENV NCCL_HOME)
foreach(nccl_bin IN ITEMS "${CMAKE_CUDA_COMPILER}" "${LOCKSTEP_NVCC}")
  if(nccl_bin)
    file(REAL_PATH "${nccl_bin}" nccl_bin)
    cmake_path(GET nccl_bin PARENT_PATH nccl_bin)
    list(APPEND nccl_hints "${nccl_bin}/.." "${nccl_bin}/../../nccl")
  endif()
endforeach()
foreach(nccl_bin IN ITEMS "${CUDAToolkit_BIN_DIR}" "$ENV{CUDA_HOME}/bin" "$ENV{CUDA_PATH}/bin")
  if(IS_DIRECTORY "${nccl_bin}")
    list(APPEND nccl_hints "${nccl_bin}/.." "${nccl_bin}/../../nccl")
  endif()
endforeach()
list(APPEND nccl_hints /usr/local/cuda)

find_path(NCCL_INCLUDE_DIR NAMES nccl.h HINTS ${nccl_hints} PATH_SUFFIXES include)
find_library(
  NCCL_LIBRARY NAMES nccl libnccl.so.2 NAMES_PER_DIR
  HINTS ${nccl_hints}
  PATH_SUFFIXES lib64 lib
)
mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)

set(NCCL_VERSION)
if(NCCL_INCLUDE_DIR)
  file(STRINGS "${NCCL_INCLUDE_DIR}/nccl.h" nccl_lines REGEX "define NCCL_(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE "[^0-9;]" "" NCCL_VERSION "${nccl_lines}")
  string(REPLACE ";" "." NCCL_VERSION "${NCCL_VERSION}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  NCCL
  REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR
  VERSION_VAR NCCL_VERSION
  REASON_FAILURE_MESSAGE
    "NVIDIA's package is libnccl-dev, or nvidia-nccl-cu13 on PyPI. NCCL_HOME says where it is"
)

if(NCCL_FOUND AND NOT TARGET NCCL::NCCL)
  add_library(NCCL::NCCL UNKNOWN IMPORTED)
  set_target_properties(
    NCCL::NCCL
    PROPERTIES
      IMPORTED_LOCATION "${NCCL_LIBRARY}"
      INTERFACE_INCLUDE_DIRECTORIES "${NCCL_INCLUDE_DIR}"
  )
endif()

unset(nccl_bin)
unset(nccl_hints)
unset(nccl_lines)
