# SPDX-License-Identifier: Apache-2.0

# The device-independent tests with CUDA devices where they name host devices: the same files, whose
# text is changed on the way.
#
#   lockstep_cuda_copies(DIRECTORY)
#       writes them below DIRECTORY (which comes first among the include directories of what is
#       compiled of them) and sets `groups`, the names of the test directories, for each of them
#       `sources_of_GROUP`, and `host_only`: GoogleTest patterns, joined by colons, of the tests that
#       are about host devices themselves.

set(lockstep_cuda_copies_directory "${CMAKE_CURRENT_LIST_DIR}")

function(lockstep_cuda_copies directory)
  # The other directories are about host devices, files and processes, and so are most files of data
  # and distributed; single tests of that kind are in host_only.txt.
  file(
    GLOB_RECURSE sources
    CONFIGURE_DEPENDS
    RELATIVE "${PROJECT_SOURCE_DIR}/tests"
    "${PROJECT_SOURCE_DIR}/tests/*_test.cpp"
    "${PROJECT_SOURCE_DIR}/tests/*.hpp"
  )
  list(
    FILTER sources INCLUDE
    REGEX
      "^((support|tensor|autograd|ops|module|nn|optim|parallel|io)/|(data/(out_of_memory_walk|collate|data[a-z_]+|prefetch[a-z_]*)|distributed/(process_group|run))_test)"
  )
  set(groups)
  foreach(source IN LISTS sources)
    set(original "${PROJECT_SOURCE_DIR}/tests/${source}")
    set(copy "${directory}/${source}")
    file(READ "${original}" text)
    string(REGEX REPLACE "cpu:([0-9])" "cuda:\\1" text "${text}")
    string(REPLACE "DeviceType::cpu" "DeviceType::cuda" text "${text}")
    if(source MATCHES "^(parallel|data|distributed)/.*_test\\.cpp$")
      lockstep_change_streams(text)
    endif()
    lockstep_copy_test("${original}" "${copy}" "${text}")
    if(source MATCHES "_test\\.cpp$")
      string(REGEX MATCH "^[^/]+" group "${source}")
      if(source MATCHES "^data/out_of_memory_walk_")
        set(group parallel)
      endif()
      list(APPEND groups ${group})
      list(APPEND sources_of_${group} "${copy}")
    endif()
  endforeach()
  list(REMOVE_DUPLICATES groups)

  lockstep_read_patterns("${lockstep_cuda_copies_directory}/host_only.txt" host_only)

  set(groups "${groups}" PARENT_SCOPE)
  set(host_only "${host_only}" PARENT_SCOPE)
  foreach(group IN LISTS groups)
    set(sources_of_${group} "${sources_of_${group}}" PARENT_SCOPE)
  endforeach()
endfunction()
