# SPDX-License-Identifier: Apache-2.0

# Defines lockstep::compiled: lockstep with its definitions in a static library, which is compiled once,
# here and with the flags of the directory that asks for it first, so that the files of a program only
# compile declarations (lockstep/config.hpp). Where lockstep::cuda is there, too, lockstep::cuda_compiled
# is both with the CUDA side compiled once by nvcc; its headers do not need nvcc.
#
# A program links these or lockstep::lockstep and lockstep::cuda, not some files the ones and some the
# others. Where several shared libraries of a program use lockstep, one of them links these and the
# others link that one: each copy has threads, devices' memory and settings of its own wherever the
# loader does not merge them (hidden symbols, dlopen).

if(NOT TARGET lockstep::compiled)
  set(lockstep_source "${CMAKE_CURRENT_BINARY_DIR}/lockstep_compiled/lockstep.cpp")
  file(CONFIGURE OUTPUT "${lockstep_source}" CONTENT "#include <lockstep/src.hpp>\n" @ONLY)
  add_library(lockstep_compiled STATIC EXCLUDE_FROM_ALL "${lockstep_source}")
  add_library(lockstep::compiled ALIAS lockstep_compiled)
  target_link_libraries(lockstep_compiled PUBLIC lockstep::lockstep)
  target_compile_definitions(lockstep_compiled PUBLIC LOCKSTEP_SEPARATE_COMPILATION)
  set_target_properties(lockstep_compiled PROPERTIES POSITION_INDEPENDENT_CODE ON)
  unset(lockstep_source)
endif()

if(TARGET lockstep::cuda AND NOT TARGET lockstep::cuda_compiled)
  get_property(lockstep_languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  if(NOT "CUDA" IN_LIST lockstep_languages)
    message(FATAL_ERROR "lockstep::cuda_compiled needs the language: project(… LANGUAGES CXX CUDA)")
  endif()
  unset(lockstep_languages)
  # CMake learnt in 3.26 what C++20 is called by nvcc.
  if(CMAKE_VERSION VERSION_LESS 3.26)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  set(lockstep_source "${CMAKE_CURRENT_BINARY_DIR}/lockstep_compiled/lockstep.cu")
  file(CONFIGURE OUTPUT "${lockstep_source}" CONTENT "#include <lockstep/cuda_src.hpp>\n" @ONLY)
  add_library(lockstep_cuda_compiled STATIC EXCLUDE_FROM_ALL "${lockstep_source}")
  add_library(lockstep::cuda_compiled ALIAS lockstep_cuda_compiled)
  target_link_libraries(lockstep_cuda_compiled PUBLIC lockstep::compiled lockstep::cuda)
  set_target_properties(
    lockstep_cuda_compiled
    PROPERTIES
      CUDA_STANDARD 20
      CUDA_STANDARD_REQUIRED ON
      POSITION_INDEPENDENT_CODE ON
  )
  unset(lockstep_source)
endif()
