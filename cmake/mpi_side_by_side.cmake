# SPDX-License-Identifier: Apache-2.0

# Open MPI and MPICH in one build, if a system has both side by side, as Debian does. Each is found by the
# compiler wrapper and the launcher with its name, openmpi or mpich.

include_guard(GLOBAL)

# Makes the target mpi_NAME, which a program of that MPI links, if that MPI is installed.
# LOCKSTEP_MPIRUN_NAME is its launcher.
function(add_mpi_library name)
  find_program(LOCKSTEP_MPICC_${name} "mpicc.${name}")
  find_program(LOCKSTEP_MPIRUN_${name} "mpirun.${name}")
  mark_as_advanced(LOCKSTEP_MPICC_${name} LOCKSTEP_MPIRUN_${name})
  if(TARGET mpi_${name} OR NOT LOCKSTEP_MPICC_${name} OR NOT LOCKSTEP_MPIRUN_${name})
    return()
  endif()
  execute_process(
    COMMAND "${LOCKSTEP_MPICC_${name}}" -show
    OUTPUT_VARIABLE line
    ERROR_VARIABLE line
    RESULT_VARIABLE code
  )
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${LOCKSTEP_MPICC_${name}} -show ended with ${code}:\n${line}")
  endif()
  separate_arguments(flags UNIX_COMMAND "${line}")
  list(FILTER flags INCLUDE REGEX "^-[ILl]")
  set(directories ${flags})
  list(FILTER directories INCLUDE REGEX "^-I")
  list(TRANSFORM directories REPLACE "^-I" "")
  list(FILTER flags EXCLUDE REGEX "^-I")
  add_library(mpi_${name} INTERFACE)
  target_include_directories(mpi_${name} SYSTEM INTERFACE ${directories})
  target_link_libraries(mpi_${name} INTERFACE ${flags})
endfunction()
