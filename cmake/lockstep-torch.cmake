# SPDX-License-Identifier: Apache-2.0

# Defines lockstep::torch: lockstep with LibTorch, for files that include lockstep/torch.hpp.
# CMake looks for LibTorch in CMAKE_PREFIX_PATH.
#
# LibTorch is linked before lockstep's BLAS. Some builds of LibTorch have a BLAS inside and export it under
# the names that every BLAS has. Linked first, LibTorch uses its own.

# A LibTorch with CUDA replaces CMAKE_CUDA_ARCHITECTURES with those it was built for, which the toolkit
# may not have. So they and CMAKE_CUDA_FLAGS are restored afterwards: no file for nvcc here includes LibTorch.
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

# LibTorch's flags reach only what links LibTorch, so its ABI has to be that of the rest.
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
