# SPDX-License-Identifier: Apache-2.0

# Compiles SOURCE with the command line after `--`. The variant `fails` must be refused with a
# message that matches the file's first line, among at most MOST_ERRORS errors in all, or as many as a
# second line `// errors: N` says; `compiles_as_control` must be accepted. A second line
# `// flag: FLAG` adds to the command of `fails`.
#
# HEADERS, which has been compiled, is included first where SOURCE includes anything of parallel/.
#
#   cmake -D SOURCE=FILE -D VARIANT=fails -D HEADERS=FILE.hpp -P check.cmake -- g++ -std=c++20 ...

cmake_minimum_required(VERSION 3.22)

# One mistake is to be told once: beside the message there may be the compiler's own word on the line
# that has it, and one on what that line was to give.
set(MOST_ERRORS 3)

set(command)
set(after_dashes OFF)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE ${last})
  if(after_dashes AND NOT CMAKE_ARGV${i} STREQUAL "")
    list(APPEND command "${CMAKE_ARGV${i}}")
  elseif(CMAKE_ARGV${i} STREQUAL "--")
    set(after_dashes ON)
  endif()
endforeach()

set(ENV{LC_ALL} C)
list(APPEND command -fsyntax-only)
file(STRINGS "${SOURCE}" parallel REGEX "^#include <lockstep/parallel/")
if(parallel)
  list(APPEND command -include "${HEADERS}")
endif()
file(STRINGS "${SOURCE}" first_lines LIMIT_COUNT 2)
if(VARIANT STREQUAL "compiles_as_control")
  list(APPEND command -DLOCKSTEP_CONTROL)
elseif(first_lines MATCHES "// flag: ([^;]+)$")
  list(APPEND command "${CMAKE_MATCH_1}")
elseif(first_lines MATCHES "// errors: ([0-9]+)$")
  set(MOST_ERRORS "${CMAKE_MATCH_1}")
endif()
execute_process(
  COMMAND ${command} "${SOURCE}"
  OUTPUT_VARIABLE output
  ERROR_VARIABLE output
  RESULT_VARIABLE result
)

if(VARIANT STREQUAL "compiles_as_control")
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${SOURCE} does not compile with LOCKSTEP_CONTROL either:\n${output}")
  endif()
  return()
endif()

file(STRINGS "${SOURCE}" first_line LIMIT_COUNT 1)
if(NOT first_line MATCHES "^// expect: (.+)$")
  message(FATAL_ERROR "The first line of ${SOURCE} is not '// expect: REGEX' but '${first_line}'")
endif()
set(expected "${CMAKE_MATCH_1}")
if(result EQUAL 0)
  message(FATAL_ERROR "${SOURCE} compiles, and should be refused with '${expected}'")
elseif(NOT output MATCHES "${expected}")
  message(FATAL_ERROR "${SOURCE}: expected a message that matches '${expected}', got:\n${output}")
endif()
string(REGEX MATCHALL "error: " errors "${output}")
list(LENGTH errors count)
if(count GREATER MOST_ERRORS)
  message(FATAL_ERROR "${SOURCE}: ${count} errors, ${MOST_ERRORS} are expected at most:\n${output}")
endif()
