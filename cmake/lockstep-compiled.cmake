# SPDX-License-Identifier: Apache-2.0

# Defines lockstep::compiled: lockstep with its definitions in a static library, which is compiled once.
# The files of a program then compile only declarations (lockstep/config.hpp). The library gets the flags
# of the directory that asks for it first. If lockstep::cuda and the language CUDA are there, too, defines
# lockstep::cuda_compiled: both, with the CUDA side compiled once by nvcc. Its headers do not need nvcc.
#
#   lockstep_INCLUDE_DIR   where the headers lie
#   lockstep_GLOB_OPTIONS  CONFIGURE_DEPENDS if the next build may have other headers
#
# All files of a program link these, or all link lockstep::lockstep and lockstep::cuda. If several shared
# libraries of a program use lockstep, one of them links these and the others link that one. Otherwise
# each copy has its own threads, devices' memory and settings wherever the loader does not merge them
# (hidden symbols, dlopen). Nothing here can be exported: a static library that is installed with its own
# export set links lockstep::lockstep.

if(NOT TARGET lockstep::compiled)
  # Each group of layers, low to high, is one file. A change in one group recompiles no lower group.
  set(
    lockstep_groups
    "device profile backend tensor autograd ops"
    "module distributed nn optim"
    "parallel data io"
  )
  set(lockstep_sources)
  set(lockstep_below "")
  set(lockstep_define LOCKSTEP_SOURCE)
  set(lockstep_own "#include <lockstep/atomic_file.hpp>\n#include <lockstep/warning.hpp>\n")
  foreach(lockstep_group IN LISTS lockstep_groups)
    separate_arguments(lockstep_layers UNIX_COMMAND "${lockstep_group}")
    foreach(lockstep_layer IN LISTS lockstep_layers)
      file(
        GLOB_RECURSE lockstep_found
        ${lockstep_GLOB_OPTIONS}
        RELATIVE "${lockstep_INCLUDE_DIR}"
        "${lockstep_INCLUDE_DIR}/lockstep/${lockstep_layer}/*.hpp"
      )
      list(TRANSFORM lockstep_found REPLACE "(.+)" "#include <\\1>\n")
      string(CONCAT lockstep_own "${lockstep_own}" ${lockstep_found})
    endforeach()
    string(REPLACE " " "_" lockstep_source "${lockstep_group}")
    set(lockstep_source "${CMAKE_CURRENT_BINARY_DIR}/lockstep_compiled/${lockstep_source}.cpp")
    file(
      CONFIGURE OUTPUT "${lockstep_source}"
      CONTENT "${lockstep_below}#define ${lockstep_define}\n${lockstep_own}"
      @ONLY
    )
    list(APPEND lockstep_sources "${lockstep_source}")
    string(APPEND lockstep_below "${lockstep_own}")
    set(lockstep_own "")
    set(lockstep_define LOCKSTEP_DEFINITIONS)
  endforeach()
  add_library(lockstep_compiled STATIC EXCLUDE_FROM_ALL ${lockstep_sources})
  add_library(lockstep::compiled ALIAS lockstep_compiled)
  target_link_libraries(lockstep_compiled PUBLIC lockstep::lockstep)
  target_compile_definitions(lockstep_compiled PUBLIC LOCKSTEP_SEPARATE_COMPILATION)
  set_target_properties(
    lockstep_compiled
    PROPERTIES
      CXX_SCAN_FOR_MODULES OFF
      POSITION_INDEPENDENT_CODE ON
  )
  foreach(lockstep_name IN ITEMS groups sources below define own group layers layer found source name)
    unset(lockstep_${lockstep_name})
  endforeach()
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
