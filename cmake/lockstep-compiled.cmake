# SPDX-License-Identifier: Apache-2.0

# Defines lockstep::compiled: lockstep with its definitions in a static library, which is compiled once,
# here and with the flags of the directory that asks for it first, so that the files of a program only
# compile declarations (lockstep/config.hpp). Where lockstep::cuda and the language CUDA are there, too,
# lockstep::cuda_compiled is both with the CUDA side compiled once by nvcc; its headers do not need nvcc.
#
# A program links these or lockstep::lockstep and lockstep::cuda, not some files the ones and some the
# others. Where several shared libraries of a program use lockstep, one of them links these and the
# others link that one: each copy has threads, devices' memory and settings of its own wherever the
# loader does not merge them (hidden symbols, dlopen). A static library that is installed with an
# export set of its own links lockstep::lockstep: nothing here can be exported.

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

get_property(lockstep_languages GLOBAL PROPERTY ENABLED_LANGUAGES)
if(NOT TARGET lockstep::cuda OR TARGET lockstep::cuda_compiled)
elseif(NOT "CUDA" IN_LIST lockstep_languages)
  message(
    STATUS
    "lockstep::cuda_compiled needs the language, project(… LANGUAGES CXX CUDA), but there are: ${lockstep_languages}"
  )
else()
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
unset(lockstep_languages)
