# SPDX-License-Identifier: Apache-2.0

# Defines lockstep::torch: lockstep with LibTorch, for files that include lockstep/torch.hpp. Which
# LibTorch that is, CMake's search decides; CMAKE_PREFIX_PATH or Torch_DIR tells it.
#
# LibTorch is linked before the BLAS of lockstep. Some of its builds have a BLAS inside, and export it
# under the names that every BLAS has: so theirs is the one that they use.

find_package(Torch REQUIRED)

if(NOT TARGET lockstep::torch)
  add_library(lockstep::torch INTERFACE IMPORTED GLOBAL)
  target_link_libraries(
    lockstep::torch
    INTERFACE ${TORCH_LIBRARIES} ${CMAKE_DL_LIBS} lockstep::lockstep
  )
endif()
