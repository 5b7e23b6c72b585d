# SPDX-License-Identifier: Apache-2.0

# Builds and runs the project in consumer/ against lockstep, which it gets in the way WAY. The
# arguments are those that CMakeLists.txt beside this file passes.

cmake_minimum_required(VERSION 3.22)

function(run what)
  execute_process(
    COMMAND ${ARGN}
    OUTPUT_VARIABLE output
    ERROR_VARIABLE output
    RESULT_VARIABLE result
  )
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${what} ended with ${result}:\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE "${WORK_DIR}")
set(prefix "${WORK_DIR}/prefix")
set(build "${WORK_DIR}/build")

set(origin "-DCMAKE_PREFIX_PATH=${prefix}")
if(WAY STREQUAL "find_package")
  run("The installation" "${CMAKE_COMMAND}" --install "${BINARY_DIR}" --prefix "${prefix}")
  run("Comparing what is installed with the sources" diff -r -x README.md
      "${SOURCE_DIR}/include/lockstep" "${prefix}/include/lockstep")
else()
  set(origin "-DLOCKSTEP_SOURCE_DIR=${SOURCE_DIR}")
endif()

# The library's sources for the host are compiled in BINARY_DIR already, from the same headers.
if(LIBRARY MATCHES "compiled")
  set(ENV{CMAKE_CXX_COMPILER_LAUNCHER} "${CMAKE_CURRENT_LIST_DIR}/reuse.sh;${BINARY_DIR}")
endif()
set(cuda)
if(LIBRARY STREQUAL "cuda_compiled")
  set(cuda "-DCMAKE_CUDA_COMPILER=${NVCC}" -DCMAKE_CUDA_ARCHITECTURES=90)
endif()
run(
  "Configuring the consumer"
  "${CMAKE_COMMAND}" -S "${CMAKE_CURRENT_LIST_DIR}/consumer" -B "${build}" -G "${GENERATOR}"
  "-DCMAKE_MAKE_PROGRAM=${MAKE_PROGRAM}" "-DCMAKE_CXX_COMPILER=${CXX_COMPILER}"
  "-DCMAKE_CXX_FLAGS=${CXX_FLAGS}" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON
  -DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON "-DLIBRARY=${LIBRARY}" "${origin}" ${cuda}
)
# The build would go through them each time.
if(WAY STREQUAL "find_package" AND EXISTS "${build}/CMakeFiles/VerifyGlobs.cmake")
  message(FATAL_ERROR "The consumer's build looks for headers that the installation might get")
endif()
run("Building the consumer" "${CMAKE_COMMAND}" --build "${build}")
run("The consumer" "${build}/consumer")

file(READ "${build}/compile_commands.json" commands)
if(commands MATCHES " (-W[^ \"]*)")
  message(FATAL_ERROR "The consumer inherited ${CMAKE_MATCH_1}:\n${commands}")
endif()
set(expected 1)
if(LIBRARY STREQUAL "compiled")
  set(expected 4)  # three are the library's
elseif(LIBRARY STREQUAL "cuda_compiled")
  set(expected 5)
endif()
string(JSON units LENGTH "${commands}")
if(NOT units EQUAL expected)
  message(FATAL_ERROR "Expected ${expected} compiled files of the consumer:\n${commands}")
endif()
if(WAY STREQUAL "find_package" AND commands MATCHES "${SOURCE_DIR}/include")
  message(FATAL_ERROR "The consumer compiles against the source tree, not the prefix:\n${commands}")
endif()
