# SPDX-License-Identifier: Apache-2.0

# A file that includes every header and uses nothing of them has next to nothing of them in its object:
# no table of virtual functions, with all that they call, and at most MOST functions.
#
#   cmake -D NM=nm -D OBJECTS=unit.o -D MOST=100 -P check_unused.cmake

cmake_minimum_required(VERSION 3.22)

if(NOT OBJECTS)
  message(FATAL_ERROR "OBJECTS names no object")
endif()
foreach(object IN LISTS OBJECTS)
  execute_process(
    COMMAND "${NM}" --demangle --defined-only "${object}"
    OUTPUT_VARIABLE output
    COMMAND_ERROR_IS_FATAL ANY
  )
  string(REGEX MATCHALL "vtable for [^\n]*" tables "${output}")
  if(tables)
    message(FATAL_ERROR "${object}, which only includes headers, has:\n${tables}")
  endif()
  string(REGEX MATCHALL " [TtWw] " functions "${output}")
  list(LENGTH functions count)
  message("${object}: ${count} functions")
  if(count EQUAL 0 OR count GREATER MOST)
    message(FATAL_ERROR "Expected up to ${MOST} functions:\n${output}")
  endif()
endforeach()
