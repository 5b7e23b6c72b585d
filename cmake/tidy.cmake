# SPDX-License-Identifier: Apache-2.0

# `cmake --build DIR --target tidy` runs clang-tidy over every program of the tests and examples
# that is meant to compile, and through them over the headers. It wants the flags of clang: configure with the preset
# `clang`, and with -D LOCKSTEP_BUILD_EXAMPLES=ON.

find_program(LOCKSTEP_RUN_CLANG_TIDY NAMES run-clang-tidy run-clang-tidy-14)
mark_as_advanced(LOCKSTEP_RUN_CLANG_TIDY)

if(LOCKSTEP_RUN_CLANG_TIDY)
  add_custom_target(
    tidy
    COMMAND
      "${LOCKSTEP_RUN_CLANG_TIDY}" -quiet -p "${PROJECT_BINARY_DIR}"
      "${PROJECT_SOURCE_DIR}/(examples/|tests/(?!compile_fail/))"
    USES_TERMINAL
    VERBATIM
  )
else()
  add_custom_target(
    tidy
    COMMAND "${CMAKE_COMMAND}" -E echo "tidy needs run-clang-tidy (Debian: clang-tidy)"
    COMMAND "${CMAKE_COMMAND}" -E false
    VERBATIM
  )
endif()
