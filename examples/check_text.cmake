# SPDX-License-Identifier: Apache-2.0

# Runs PROGRAM with the ARGUMENTS and checks that its text model ended with a lower validation loss
# than bigrams have, by the last "validation loss 1.…  (bigrams 2.…)" that it prints.

cmake_minimum_required(VERSION 3.22)

separate_arguments(ARGUMENTS UNIX_COMMAND "${ARGUMENTS}")
execute_process(
  COMMAND "${PROGRAM}" ${ARGUMENTS}
  OUTPUT_VARIABLE printed
  RESULT_VARIABLE result
)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "Training ended with ${result} after printing\n${printed}")
endif()
if(NOT printed MATCHES ".*validation loss ([0-9.]+)  \\(bigrams ([0-9.]+)\\)")
  message(FATAL_ERROR "No \"validation loss\" in\n${printed}")
endif()
if(NOT CMAKE_MATCH_1 LESS CMAKE_MATCH_2)
  message(FATAL_ERROR "Validation loss is ${CMAKE_MATCH_1}, that of bigrams ${CMAKE_MATCH_2}")
endif()
message("Validation loss ${CMAKE_MATCH_1}, that of bigrams ${CMAKE_MATCH_2}")
