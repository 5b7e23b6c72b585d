# SPDX-License-Identifier: Apache-2.0

# Defines lockstep::torch: lockstep with LibTorch, for files that include lockstep/torch.hpp. Which
# LibTorch that is, CMake's search decides; CMAKE_PREFIX_PATH tells it.
#
# LibTorch is linked before the BLAS of lockstep. Some of its builds have a BLAS inside, and export it
# under the names that every BLAS has: so theirs is the one that they use.

# A LibTorch with CUDA puts the architectures that it was built for in the place of those that files
# for nvcc are compiled for, and a toolkit may lack some. No such file here includes LibTorch.
set(lockstep_cuda_variables CMAKE_CUDA_FLAGS)
if(DEFINED CMAKE_CUDA_ARCHITECTURES)
  list(APPEND lockstep_cuda_variables CMAKE_CUDA_ARCHITECTURES)
endif()
foreach(variable IN LISTS lockstep_cuda_variables)
  set(lockstep_${variable} "${${variable}}")
endforeach()
if(NOT DEFINED lockstep_need)
  set(lockstep_need REQUIRED)
endif()
find_package(Torch ${lockstep_need})
foreach(variable IN LISTS lockstep_cuda_variables)
  set(${variable} "${lockstep_${variable}}")
endforeach()
if(NOT Torch_FOUND)
  return()
endif()

# Only what links LibTorch is compiled with its flags.
set(old_abi "-D_GLIBCXX_USE_CXX11_ABI=0")
if(TORCH_CXX_FLAGS MATCHES "${old_abi}" AND NOT CMAKE_CXX_FLAGS MATCHES "${old_abi}")
  message(
    FATAL_ERROR
    "lockstep: this LibTorch (${TORCH_INSTALL_PREFIX}) has the old ABI of libstdc++, and the rest of the program has "
    "the new one: take a LibTorch with the cxx11 ABI, or put ${old_abi} into CMAKE_CXX_FLAGS, so that all files, and "
    "all C++ libraries, have the old one"
  )
endif()
unset(old_abi)

if(NOT TARGET lockstep::torch)
  add_library(lockstep::torch INTERFACE IMPORTED GLOBAL)
  target_link_libraries(
    lockstep::torch
    INTERFACE ${TORCH_LIBRARIES} ${CMAKE_DL_LIBS} lockstep::lockstep
  )
endif()
