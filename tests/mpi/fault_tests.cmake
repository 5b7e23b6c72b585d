# SPDX-License-Identifier: Apache-2.0

# Tests in which one rank fails and the others say so: mpi.NAME.fault.FAULT_in_world_of_N, where the
# last rank fails, and for some faults .FAULT_of_rank_0_in_world_of_N. LAUNCH is what starts ranks
# and lets the others go on.
function(add_mpi_fault_tests name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "PACKAGES" "WORLDS;ENVIRONMENT;LAUNCH")
  foreach(world IN LISTS arg_WORLDS)
    math(EXPR last "${world} - 1")
    foreach(fault IN ITEMS killed stopped sleeps throws fewer_batches other_call other_model
                           other_dtype killed_of_rank_0 stopped_of_rank_0 fewer_batches_of_rank_0
                           no_message not_received killed_no_message killed_not_received
                           other_length other_length_ends second_init no_new_group killed_no_new_group)
      # Their time limits pass one by one, and the first rank that gives up ends the others.
      if(world GREATER 2 AND fault MATCHES "^no.*(message|received)$")
        continue()
      endif()
      # There both see it.
      if(world EQUAL 2 AND fault STREQUAL "other_length")
        continue()
      endif()
      set(failing ${last})
      if(fault MATCHES "_of_rank_0$")
        set(failing 0)
      endif()
      string(REPLACE "_of_rank_0" "" act "${fault}")
      set(test mpi.${name}.fault.${fault}_in_world_of_${world})
      if(TARGET mpi_${name})
        add_test(
          NAME ${test}
          COMMAND
            sh "${CMAKE_CURRENT_SOURCE_DIR}/fault.sh" ${act} ${failing} ${world}
            $<TARGET_FILE:mpi_fault_${name}> "${LOCKSTEP_MPIRUN_${name}}" ${arg_LAUNCH}
        )
      else()
        add_test(
          NAME ${test}
          COMMAND
            "${CMAKE_COMMAND}" -E echo
            "skipped: needs mpicc.${name} and mpirun.${name} (Debian: ${arg_PACKAGES})"
        )
      endif()
      # Most of each is a wait: they start early, one at a time, beside tests that compute.
      set_tests_properties(
        ${test}
        PROPERTIES
          TIMEOUT 60
          COST 50
          RESOURCE_LOCK mpi_fault
          ENVIRONMENT
            "${arg_ENVIRONMENT};ASAN_OPTIONS=detect_leaks=0;TSAN_OPTIONS=report_bugs=0"
          SKIP_REGULAR_EXPRESSION "^skipped: needs"
      )
    endforeach()
  endforeach()
endfunction()

add_mpi_fault_tests(
  openmpi
  PACKAGES "libopenmpi-dev openmpi-bin"
  WORLDS 2 3
  LAUNCH --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 --enable-recovery
  ENVIRONMENT OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
)
add_mpi_fault_tests(
  mpich
  PACKAGES "libmpich-dev mpich"
  WORLDS 2
  LAUNCH -disable-auto-cleanup
)
