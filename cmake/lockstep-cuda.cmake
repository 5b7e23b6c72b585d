# SPDX-License-Identifier: Apache-2.0

# Defines lockstep::cuda: lockstep with what its CUDA side links. One file of the program, compiled by
# nvcc as C++20, includes lockstep/cuda.hpp. Where NCCL is there, also lockstep::nccl, for
# lockstep/nccl.hpp.

# CMake learnt in 3.26 what C++20 is called by nvcc. In the cache, for every directory of the program.
if(CMAKE_VERSION VERSION_LESS 3.26)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20 CACHE INTERNAL "C++20 by nvcc")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20 CACHE INTERNAL "C++20 by nvcc")
endif()

# A wheel has its libraries without the names that linkers look for, in `lib` beside nvcc's `bin`.
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
  # The static runtime: nothing to be found when the program starts, with a driver or without.
  target_link_libraries(
    lockstep::cuda
    INTERFACE lockstep::lockstep CUDA::cudart_static CUDA::cublasLt CUDNN::cudnn
  )
endif()
if(NCCL_FOUND AND NOT TARGET lockstep::nccl)
  add_library(lockstep::nccl INTERFACE IMPORTED GLOBAL)
  target_link_libraries(lockstep::nccl INTERFACE lockstep::cuda NCCL::NCCL)
endif()
