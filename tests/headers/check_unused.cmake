# SPDX-License-Identifier: Apache-2.0

# A file that includes lockstep.hpp and uses nothing of it has next to nothing of it in its object: no
# table of virtual functions, with all that they call, and at most MOST functions.
#
#   cmake -D CXX_COMPILER=g++ -D CXX_FLAGS= -D NM=nm -D INCLUDE_DIRS=include -D WORK_DIR=dir
#         -D MOST=100 -P check_unused.cmake

cmake_minimum_required(VERSION 3.22)

set(source "${WORK_DIR}/unused.cpp")
file(WRITE "${source}" "#include <lockstep/lockstep.hpp>\n")
separate_arguments(flags NATIVE_COMMAND "${CXX_FLAGS}")
list(TRANSFORM INCLUDE_DIRS PREPEND -I OUTPUT_VARIABLE includes)
execute_process(
  COMMAND "${CXX_COMPILER}" ${flags} -std=c++20 -O0 ${includes} -c "${source}" -o "${source}.o"
  COMMAND_ERROR_IS_FATAL ANY
)
execute_process(
  COMMAND "${NM}" --demangle --defined-only "${source}.o"
  OUTPUT_VARIABLE output
  COMMAND_ERROR_IS_FATAL ANY
)
string(REGEX MATCHALL "vtable for [^\n]*" tables "${output}")
if(tables)
  message(FATAL_ERROR "A file that only includes lockstep.hpp has:\n${tables}")
endif()
string(REGEX MATCHALL " [TtWw] " functions "${output}")
list(LENGTH functions count)
message("${count} functions")
if(count EQUAL 0 OR count GREATER MOST)
  message(FATAL_ERROR "Expected up to ${MOST} functions:\n${output}")
endif()
