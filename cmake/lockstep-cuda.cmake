# SPDX-License-Identifier: Apache-2.0

# Defines lockstep::cuda: lockstep with what its CUDA side links. One file of the program, compiled by
# nvcc as C++20, includes lockstep/cuda.hpp. Where NCCL is there, also lockstep::nccl, for
# lockstep/nccl.hpp.

find_package(CUDAToolkit REQUIRED)
find_package(CUDNN REQUIRED)
find_package(NCCL QUIET)

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
