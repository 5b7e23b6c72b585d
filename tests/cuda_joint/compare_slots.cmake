# SPDX-License-Identifier: Apache-2.0

# Compares the kernel_slots that a library names with those that an object file fills.
#
#   cmake -D NM=nm -D LIBRARY=library.a -D CUDA=gpu.o -P compare_slots.cmake

cmake_minimum_required(VERSION 3.22)

# The template argument of each symbol of `object` that matches.
function(arguments_of result object pattern)
  execute_process(
    COMMAND "${NM}" --demangle "${object}"
    OUTPUT_VARIABLE symbols
    COMMAND_ERROR_IS_FATAL ANY
  )
  string(REGEX MATCHALL "${pattern}" lines "${symbols}")
  set(names)
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "${pattern}" "\\1" name "${line}")
    list(APPEND names "${name}")
  endforeach()
  list(REMOVE_DUPLICATES names)
  set(${result} "${names}" PARENT_SCOPE)
endfunction()

arguments_of(known "${LIBRARY}" " lockstep::detail::kernel_slot<([^\n]*)>\n")
arguments_of(
  filled
  "${CUDA}"
  "lockstep::cuda::[a-z]+_slot<([^\n]*)>\\(lockstep::detail::StreamState&, unsigned long, void const[*]\\)\n"
)

# The file has a functor of its own besides.
list(FILTER filled INCLUDE REGEX "^lockstep::")
# This one the CUDA side launches itself.
list(FILTER filled EXCLUDE REGEX "CopySixteens")

list(LENGTH known count)
if(count LESS 100)
  message(FATAL_ERROR "only ${count} slots found in ${LIBRARY}: are they named otherwise now?")
endif()
set(missing ${known})
list(REMOVE_ITEM missing ${filled})
set(unused ${filled})
list(REMOVE_ITEM unused ${known})
list(JOIN missing "\n  " missing_lines)
list(JOIN unused "\n  " unused_lines)
if(missing)
  message(SEND_ERROR "launched, but without a kernel in lockstep/cuda/kernels.hpp:\n  ${missing_lines}")
endif()
if(unused)
  message(SEND_ERROR "in lockstep/cuda/kernels.hpp, but never launched:\n  ${unused_lines}")
endif()
if(NOT missing AND NOT unused)
  message(STATUS "${count} slots, each with its kernel")
endif()
