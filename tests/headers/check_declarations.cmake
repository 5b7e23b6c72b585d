# SPDX-License-Identifier: Apache-2.0

# What a file that includes lockstep.hpp reads of lockstep under LOCKSTEP_SEPARATE_COMPILATION: no
# definitions (*.ipp, *.inc), and no more than MOST bytes, which is what it costs every file of a program.
#
#   cmake -D CXX_COMPILER=g++ -D CXX_FLAGS= -D INCLUDE_DIRS=include -D WORK_DIR=dir -D MOST=1000000
#         -P check_declarations.cmake

cmake_minimum_required(VERSION 3.22)

set(source "${WORK_DIR}/declarations.cpp")
file(WRITE "${source}" "#include <lockstep/lockstep.hpp>\n")
separate_arguments(flags NATIVE_COMMAND "${CXX_FLAGS}")
list(TRANSFORM INCLUDE_DIRS PREPEND -I OUTPUT_VARIABLE includes)
execute_process(
  COMMAND
    "${CXX_COMPILER}" ${flags} -std=c++20 -DLOCKSTEP_SEPARATE_COMPILATION ${includes} -MM "${source}"
  OUTPUT_VARIABLE output
  COMMAND_ERROR_IS_FATAL ANY
)
string(REGEX MATCHALL "[^ \\\n]+/lockstep/[^ \\\n]+" headers "${output}")
list(LENGTH headers count)
if(NOT headers MATCHES "/lockstep/lockstep\\.hpp")
  message(FATAL_ERROR "lockstep.hpp is not in:\n${output}")
endif()
set(sum 0)
foreach(header IN LISTS headers)
  if(header MATCHES "\\.(ipp|inc)$")
    message(FATAL_ERROR "${header} is included, where headers are to declare only")
  endif()
  file(SIZE "${header}" size)
  math(EXPR sum "${sum} + ${size}")
endforeach()
message("${count} headers of ${sum} bytes")
if(sum GREATER MOST)
  message(FATAL_ERROR "${MOST} bytes is the most that a file is to read of lockstep")
endif()
