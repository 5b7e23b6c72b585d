# SPDX-License-Identifier: Apache-2.0

# Finds cudnn.h and libcudnn, version 9 or later, and defines CUDNN::cudnn.
#
# Looked for below CUDNN_ROOT, the environment's CUDNN_HOME and the prefix of the CUDA toolkit in
# use (that of CMAKE_CUDA_COMPILER, LOCKSTEP_NVCC, find_package(CUDAToolkit), CUDA_HOME, CUDA_PATH
# or /usr/local/cuda), and beside that prefix, where PyPI's wheels put it: nvidia/cudnn next to
# nvidia/cu13. A wheel has only libcudnn.so.9, not the name that linkers look for.
#
# CUDNN_INCLUDE_DIR and CUDNN_LIBRARY may be set to point elsewhere. libcudnn loads the libraries
# that do the work (libcudnn_cnn and others) from its own directory when they are first needed.

set(cudnn_hints ENV CUDNN_HOME)
foreach(cudnn_bin IN ITEMS "${CMAKE_CUDA_COMPILER}" "${LOCKSTEP_NVCC}")
  if(cudnn_bin)
    file(REAL_PATH "${cudnn_bin}" cudnn_bin)
    cmake_path(GET cudnn_bin PARENT_PATH cudnn_bin)
    list(APPEND cudnn_hints "${cudnn_bin}/.." "${cudnn_bin}/../../cudnn")
  endif()
endforeach()
foreach(cudnn_bin IN ITEMS "${CUDAToolkit_BIN_DIR}" "$ENV{CUDA_HOME}/bin" "$ENV{CUDA_PATH}/bin")
  if(IS_DIRECTORY "${cudnn_bin}")
    list(APPEND cudnn_hints "${cudnn_bin}/.." "${cudnn_bin}/../../cudnn")
  endif()
endforeach()
list(APPEND cudnn_hints /usr/local/cuda)

find_path(CUDNN_INCLUDE_DIR NAMES cudnn.h HINTS ${cudnn_hints} PATH_SUFFIXES include)
find_library(
  CUDNN_LIBRARY NAMES cudnn libcudnn.so.9 NAMES_PER_DIR
  HINTS ${cudnn_hints}
  PATH_SUFFIXES lib64 lib
)
mark_as_advanced(CUDNN_INCLUDE_DIR CUDNN_LIBRARY)

set(CUDNN_VERSION 0)  # releases before 8 have no cudnn_version.h
if(CUDNN_INCLUDE_DIR AND EXISTS "${CUDNN_INCLUDE_DIR}/cudnn_version.h")
  file(
    STRINGS "${CUDNN_INCLUDE_DIR}/cudnn_version.h" cudnn_lines
    REGEX "define CUDNN_(MAJOR|MINOR|PATCHLEVEL) [0-9]"
  )
  string(REGEX REPLACE "[^0-9;]" "" CUDNN_VERSION "${cudnn_lines}")
  string(REPLACE ";" "." CUDNN_VERSION "${CUDNN_VERSION}")
endif()
# The calls that lockstep makes are those of version 9.
if(NOT CUDNN_FIND_VERSION)
  set(CUDNN_FIND_VERSION 9)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  CUDNN
  REQUIRED_VARS CUDNN_LIBRARY CUDNN_INCLUDE_DIR
  VERSION_VAR CUDNN_VERSION
  REASON_FAILURE_MESSAGE
    "NVIDIA's package is cudnn9-cuda-13, or nvidia-cudnn-cu13 on PyPI. CUDNN_HOME says where it is"
)

if(CUDNN_FOUND AND NOT TARGET CUDNN::cudnn)
  add_library(CUDNN::cudnn UNKNOWN IMPORTED)
  set_target_properties(
    CUDNN::cudnn
    PROPERTIES
      IMPORTED_LOCATION "${CUDNN_LIBRARY}"
      INTERFACE_INCLUDE_DIRECTORIES "${CUDNN_INCLUDE_DIR}"
  )
endif()

unset(cudnn_bin)
unset(cudnn_hints)
unset(cudnn_lines)
