# SPDX-License-Identifier: Apache-2.0

# Checks every header below INCLUDE_DIR/lockstep, and its definitions (impl/*.ipp beside it, and impl/*.inc,
# which are included several times): it includes only headers that exist, of its own directory or of a lower
# layer; it has at most 400 lines; lockstep.hpp reaches it; definitions are included by the header that they
# belong to, alone; whichever header a file includes first, each one is declared before something that it
# brings needs it; and it comes by config.hpp, which refuses C++17, before it declares anything, as it
# includes it or another header that does; and no line of it begins with `module` or `import`.
#
#   cmake -D INCLUDE_DIR=include -P check_layers.cmake

cmake_minimum_required(VERSION 3.22)

# Low to high. A line is a layer; directories of one layer do not include each other. The headers
# directly in lockstep/ stand under their file name.
set(
  layers
  "config.hpp"
  "algorithm.hpp descriptor.hpp error.hpp finite.hpp function_ref.hpp json_string.hpp non_copyable.hpp never_destroyed.hpp number_in_text.hpp"
  "scoped_value.hpp warning.hpp"
  "atomic_file.hpp"
  "device"
  "profile"
  "backend"
  "tensor"
  "autograd"
  "ops"
  "module"
  "distributed"
  "nn optim parallel"
  "data io"
  "cuda mpi torch"
  "data.hpp distributed.hpp nn.hpp optim.hpp parallel.hpp"
  "lockstep.hpp"
  "cuda.hpp mpi.hpp nccl.hpp src.hpp torch.hpp"
  "cuda_src.hpp"
)
set(max_lines 400)

set(rank 0)
foreach(layer IN LISTS layers)
  separate_arguments(directories UNIX_COMMAND "${layer}")
  foreach(directory IN LISTS directories)
    set(rank_of_${directory} ${rank})
  endforeach()
  math(EXPR rank "${rank} + 1")
endforeach()

set(problems 0)
macro(problem text)
  message("${text}")
  math(EXPR problems "${problems} + 1")
endmacro()

# The directory or file name, directly in lockstep/, that decides a header's layer.
function(layer_name header result)
  string(REPLACE "/impl/" "/" name "${header}")
  string(REGEX REPLACE "^lockstep/([^/]+).*$" "\\1" name "${name}")
  string(REGEX REPLACE "\\.(ipp|inc)$" ".hpp" name "${name}")
  set(${result} "${name}" PARENT_SCOPE)
endfunction()

cmake_path(ABSOLUTE_PATH INCLUDE_DIR)
file(
  GLOB_RECURSE headers
  RELATIVE "${INCLUDE_DIR}"
  "${INCLUDE_DIR}/lockstep/*.hpp"
  "${INCLUDE_DIR}/lockstep/*.ipp"
  "${INCLUDE_DIR}/lockstep/*.inc"
)
if(NOT headers)
  message(FATAL_ERROR "No headers below ${INCLUDE_DIR}/lockstep")
endif()

foreach(header IN LISTS headers)
  layer_name("${header}" own)
  if(NOT DEFINED rank_of_${own})
    problem("${header}: '${own}' is in no layer of check_layers.cmake")
    continue()
  endif()

  file(READ "${INCLUDE_DIR}/${header}" text)
  string(REGEX MATCHALL "\n" newlines "${text}")
  list(LENGTH newlines lines)
  if(lines GREATER max_lines)
    problem("${header}: ${lines} lines, ${max_lines} is the most")
  endif()
  if(text MATCHES "\n[ \t]*(module|import)([^A-Za-z0-9_\n][^\n]*)?\n")
    problem("${header}: nvcc takes a line that begins so for a directive:${CMAKE_MATCH_0}")
  endif()

  # No semicolon or bracket can stand in an include line that matches, so the list is safe.
  string(REGEX MATCHALL "(^|\n)[ \t]*#[ \t]*(include|define LOCKSTEP_EACH)[ \t]*[<\"][^>\"\n]*[>\"]" includes "${text}")
  string(FIND "${text}" "\nnamespace " end_of_needs)
  string(SUBSTRING "${text}" 0 ${end_of_needs} needs)
  set(includes_of_${header})
  set(needs_of_${header})
  foreach(line IN LISTS includes)
    string(REGEX REPLACE ".*([<\"])([^>\"]*)[>\"]$" "\\1;\\2" parts "${line}")
    list(GET parts 0 bracket)
    list(GET parts 1 included)
    if(bracket STREQUAL "\"")
      problem("${header}: includes \"${included}\"; write <lockstep/...>")
      continue()
    elseif(NOT included MATCHES "^lockstep/")
      continue()
    elseif(NOT EXISTS "${INCLUDE_DIR}/${included}")
      problem("${header}: includes <${included}>, which does not exist")
      continue()
    endif()
    list(APPEND includes_of_${header} "${included}")
    if(needs MATCHES "<${included}>")
      list(APPEND needs_of_${header} "${included}")
    endif()
    string(REGEX REPLACE "impl/([^/]+)\\.ipp$" "\\1.hpp" owner "${included}")
    if(included MATCHES "\\.ipp$" AND NOT owner STREQUAL header)
      problem("${header}: includes <${included}>; include <${owner}>, which brings it")
    endif()
    string(REGEX REPLACE "(impl/)?([^/]+)\\.(hpp|ipp)$" "impl/\\2.inc" own_functions "${header}")
    if(line MATCHES "LOCKSTEP_EACH" AND NOT included STREQUAL own_functions)
      problem("${header}: includes <${included}> by LOCKSTEP_EACH; its own would be <${own_functions}>")
    endif()
    layer_name("${included}" other)
    if(NOT DEFINED rank_of_${other})
      continue()  # reported where that header is checked
    elseif(NOT other STREQUAL own AND NOT rank_of_${other} LESS rank_of_${own})
      problem("${header}: includes <${included}>; '${other}' is not below '${own}'")
    endif()
  endforeach()
  if(header MATCHES "\\.hpp$" AND NOT includes_of_${header} AND NOT header STREQUAL "lockstep/config.hpp")
    problem("${header}: includes no other header of lockstep; include <lockstep/config.hpp>")
  endif()
endforeach()

# What lockstep.hpp reaches; headers that need something more are reached from cuda.hpp, nccl.hpp, mpi.hpp or
# torch.hpp instead.
# Definitions are reached from src.hpp, which compiles them, those of cuda/ from cuda_src.hpp.
set(reached)
macro(reach)
  set(pending ${ARGN})
  while(pending)
    list(POP_FRONT pending header)
    if(NOT header IN_LIST reached)
      list(APPEND reached "${header}")
      list(APPEND pending ${includes_of_${header}})
    endif()
  endwhile()
endmacro()
reach(lockstep/src.hpp)
foreach(header IN LISTS headers)
  if(header MATCHES "\\.ipp$" AND NOT header MATCHES "^lockstep/(impl/)?cuda[./]" AND NOT header IN_LIST reached)
    problem("${header}: not reached from src.hpp")
  endif()
endforeach()
reach(lockstep/cuda_src.hpp)
foreach(header IN LISTS headers)
  if(header MATCHES "^lockstep/(impl/)?cuda.*\\.ipp$" AND NOT header IN_LIST reached)
    problem("${header}: not reached from cuda_src.hpp")
  endif()
endforeach()
reach(lockstep/cuda.hpp lockstep/mpi.hpp lockstep/nccl.hpp lockstep/torch.hpp)
foreach(header IN LISTS headers)
  if(NOT header IN_LIST reached)
    problem("${header}: not reached from lockstep.hpp, cuda.hpp, nccl.hpp, mpi.hpp or torch.hpp")
  endif()
endforeach()

# A header that stands first is declared when all that it needs has been read, definitions among it: no
# file of these can need that header, whose second inclusion is empty.
foreach(first IN LISTS headers)
  if(first MATCHES "\\.(ipp|inc)$")
    continue()
  endif()
  set(pending ${needs_of_${first}})
  set(read_for_${first} "${first}")
  while(pending)
    list(POP_FRONT pending header)
    if(read_for_${header} STREQUAL first)
      continue()
    endif()
    set(read_for_${header} "${first}")
    if("${first}" IN_LIST needs_of_${header})
      problem("${header}: needs <${first}>, which includes it before it declares anything")
    endif()
    list(APPEND pending ${includes_of_${header}})
  endwhile()
endforeach()

if(problems GREATER 0)
  message(FATAL_ERROR "${problems} problem(s)")
endif()
list(LENGTH headers count)
message("${count} headers in order")
