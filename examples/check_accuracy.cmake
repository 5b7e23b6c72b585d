# SPDX-License-Identifier: Apache-2.0

# Checks that training reached a test accuracy of 0.88, by the last "test accuracy 0.…" of the file
# LOG. With PROGRAM, runs that for two epochs on two devices first, its output going to LOG.

cmake_minimum_required(VERSION 3.22)

if(DEFINED PROGRAM)
  execute_process(
    COMMAND "${PROGRAM}" --devices 2 --epochs 2
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
if(last LESS 0.88)
  message(FATAL_ERROR "Test accuracy is ${last}, expected at least 0.88")
endif()
message("Test accuracy ${last}")
