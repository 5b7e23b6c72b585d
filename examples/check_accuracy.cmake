# SPDX-License-Identifier: Apache-2.0

# Checks that training reached a test accuracy of LEAST (0.88 if not given), by the last "test
# accuracy 0.…" of the file LOG. With PROGRAM, runs that with the ARGUMENTS first, its output going
# to LOG.

cmake_minimum_required(VERSION 3.22)

if(NOT DEFINED LEAST)
  set(LEAST 0.88)
endif()

if(DEFINED PROGRAM)
  separate_arguments(ARGUMENTS UNIX_COMMAND "${ARGUMENTS}")
  execute_process(
    COMMAND "${PROGRAM}" ${ARGUMENTS}
    OUTPUT_FILE "${LOG}"
    RESULT_VARIABLE result
  )
  if(NOT result EQUAL 0)
    file(READ "${LOG}" printed)
    message(FATAL_ERROR "Training ended with ${result} after printing\n${printed}")
  endif()
endif()

file(READ "${LOG}" printed)
string(REGEX MATCHALL "test accuracy [0-9]+\\.[0-9]+" accuracies "${printed}")
if(NOT accuracies)
  message(FATAL_ERROR "No \"test accuracy\" in\n${printed}")
endif()
list(GET accuracies -1 last)
string(REGEX REPLACE "test accuracy " "" last "${last}")
if(last LESS LEAST)
  message(FATAL_ERROR "Test accuracy is ${last}, expected at least ${LEAST}")
endif()
message("Test accuracy ${last}")
