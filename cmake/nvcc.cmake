# SPDX-License-Identifier: Apache-2.0

# Compiles .cu files of the tests by calling nvcc. The project as a whole then needs neither CMake's CUDA
# language nor CUDA.
#
#   LOCKSTEP_NVCC      nvcc, or false
#   LOCKSTEP_CUDART    the static runtime, or false
#   LOCKSTEP_CUDA_INCLUDE_DIR   where cuda_runtime_api.h is, or false
#   LOCKSTEP_CUDA_ARCHITECTURES a list such as 80;90
#   lockstep_nvcc_object(RESULT NAME.cu [QUICK] [OUTPUT NAME] [DEFINITIONS …])
#       sets RESULT to the object file, with the flags and directories of `lockstep`. QUICK: for the
#       first architecture, and the host's part not optimised; otherwise for the others, if there are
#       any. The object is called after the source, or OUTPUT.

set(LOCKSTEP_CUDA_ARCHITECTURES 90 CACHE STRING "What nvcc compiles for: a list such as 80;90")

find_program(
  LOCKSTEP_NVCC nvcc
  HINTS ENV CUDA_HOME ENV CUDA_PATH
  PATHS /usr/local/cuda
  PATH_SUFFIXES bin
)
set(cuda_toolkit)
if(LOCKSTEP_NVCC)
  file(REAL_PATH "${LOCKSTEP_NVCC}" cuda_toolkit)
  cmake_path(GET cuda_toolkit PARENT_PATH cuda_toolkit)
  cmake_path(GET cuda_toolkit PARENT_PATH cuda_toolkit)
endif()
find_library(
  LOCKSTEP_CUDART cudart_static
  HINTS "${cuda_toolkit}"
  PATH_SUFFIXES lib64 lib targets/x86_64-linux/lib
)
find_path(
  LOCKSTEP_CUDA_INCLUDE_DIR cuda_runtime_api.h
  HINTS "${cuda_toolkit}" ENV CUDA_HOME ENV CUDA_PATH
  PATHS /usr/local/cuda
  PATH_SUFFIXES include targets/x86_64-linux/include
)
mark_as_advanced(LOCKSTEP_NVCC LOCKSTEP_CUDART LOCKSTEP_CUDA_INCLUDE_DIR)

function(lockstep_nvcc_object result source)
  cmake_parse_arguments(PARSE_ARGV 2 arg "QUICK" "OUTPUT" "DEFINITIONS")
  set(arguments -std=c++20 -Werror all-warnings -Xcompiler=-Wall,-Wextra)
  set(architectures ${LOCKSTEP_CUDA_ARCHITECTURES})
  list(POP_FRONT architectures first)
  if(arg_QUICK OR NOT architectures)
    set(architectures ${first})
  endif()
  # Instrumented code takes three times as long to optimise.
  if(NOT arg_QUICK AND NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize=")
    list(APPEND arguments -O2)
  endif()
  foreach(architecture IN LISTS architectures)
    set(code "[sm_${architecture},compute_${architecture}]")
    list(APPEND arguments "-gencode=arch=compute_${architecture},code=${code}")
  endforeach()
  # nvcc does not accept every clang as its host compiler. Its objects link with those of g++ and clang.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(APPEND arguments "-ccbin=${CMAKE_CXX_COMPILER}")
  endif()
  # Host code gets the flags of the rest, so that a sanitizer sees both. nvcc separates options by commas,
  # so a comma inside an option is escaped.
  separate_arguments(flags NATIVE_COMMAND "${CMAKE_CXX_FLAGS}")
  foreach(flag IN LISTS flags)
    string(REPLACE "," "\\," flag "${flag}")
    list(APPEND arguments "-Xcompiler=${flag}")
  endforeach()
  foreach(definition IN LISTS arg_DEFINITIONS)
    list(APPEND arguments "-D${definition}")
  endforeach()

  cmake_path(GET source STEM name)
  if(arg_OUTPUT)
    set(name "${arg_OUTPUT}")
  endif()
  set(object "${CMAKE_CURRENT_BINARY_DIR}/${name}.o")
  set(directories "$<TARGET_PROPERTY:lockstep_test_main,INCLUDE_DIRECTORIES>")
  add_custom_command(
    OUTPUT "${object}"
    COMMAND
      "${LOCKSTEP_NVCC}" ${arguments} "$<$<BOOL:${directories}>:-I$<JOIN:${directories},;-I>>"
      "-I$<JOIN:$<TARGET_PROPERTY:lockstep,INTERFACE_INCLUDE_DIRECTORIES>,;-I>"
      "-I$<JOIN:$<TARGET_PROPERTY:CBLAS::CBLAS,INTERFACE_INCLUDE_DIRECTORIES>,;-I>"
      -MD -MF "${object}.d" -MT "${object}"
      -c "${CMAKE_CURRENT_SOURCE_DIR}/${source}" -o "${object}"
    DEPENDS "${source}"
    DEPFILE "${object}.d"
    COMMENT "Compiling ${source} with nvcc"
    COMMAND_EXPAND_LISTS
    VERBATIM
  )
  set(${result} "${object}" PARENT_SCOPE)
endfunction()
