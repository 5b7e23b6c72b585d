# SPDX-License-Identifier: Apache-2.0

# Runs PROGRAM, or the list of a launcher and its arguments, which must succeed and print exactly the
# text of the file EXPECTED, which PAGE shows.

cmake_minimum_required(VERSION 3.22)

execute_process(COMMAND ${PROGRAM} OUTPUT_VARIABLE printed RESULT_VARIABLE result)
file(READ "${EXPECTED}" expected)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${PROGRAM} ended with ${result} after printing\n${printed}")
elseif(NOT printed STREQUAL expected)
  message(FATAL_ERROR "${PAGE} says\n${expected}\nthe program printed\n${printed}")
endif()
