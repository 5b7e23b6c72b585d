# SPDX-License-Identifier: Apache-2.0

# Defines lockstep::cuda: lockstep and the libraries of its CUDA side. One file of the program, compiled
# by nvcc as C++20, includes lockstep/cuda.hpp. If NCCL is installed, also defines lockstep::nccl, for
# lockstep/nccl.hpp.

# CMake before 3.26 does not know nvcc's option for C++20. The cache holds it for every directory of the
# program.
if(CMAKE_VERSION VERSION_LESS 3.26)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20 CACHE INTERNAL "C++20 by nvcc")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20 CACHE INTERNAL "C++20 by nvcc")
endif()

# The libraries of a wheel lie in `lib` beside nvcc's `bin`, and lack the names that linkers look for.
if(CMAKE_CUDA_COMPILER)
  cmake_path(GET CMAKE_CUDA_COMPILER PARENT_PATH wheel_libraries)
  cmake_path(REPLACE_FILENAME wheel_libraries lib)
  foreach(library IN ITEMS CUDA_CUDART=cudart CUDA_cublasLt_LIBRARY=cublasLt)
    string(REGEX MATCH "^(.*)=(.*)$" library "${library}")
    set(wheel_library "${wheel_libraries}/lib${CMAKE_MATCH_2}.so")
    if(NOT ${CMAKE_MATCH_1} AND EXISTS "${wheel_library}.13" AND NOT EXISTS "${wheel_library}")
      set(${CMAKE_MATCH_1} "${wheel_library}.13" CACHE FILEPATH "In a wheel")
    endif()
  endforeach()
  unset(wheel_libraries)
  unset(wheel_library)
endif()

if(NOT DEFINED lockstep_need)
  set(lockstep_need REQUIRED)
endif()
find_package(CUDAToolkit ${lockstep_need})
find_package(CUDNN MODULE ${lockstep_need})
if(NOT CUDAToolkit_FOUND OR NOT CUDNN_FOUND)
  return()
endif()
find_package(NCCL MODULE QUIET)

if(NOT TARGET lockstep::cuda)
  add_library(lockstep::cuda INTERFACE IMPORTED GLOBAL)
  # The static runtime: no libcudart has to be found when the program starts, with a driver or without.
  target_link_libraries(
    lockstep::cuda
    INTERFACE lockstep::lockstep CUDA::cudart_static CUDA::cublasLt CUDNN::cudnn
  )
endif()
if(NCCL_FOUND AND NOT TARGET lockstep::nccl)
  add_library(lockstep::nccl INTERFACE IMPORTED GLOBAL)
  target_link_libraries(lockstep::nccl INTERFACE lockstep::cuda NCCL::NCCL)
endif()
