# SPDX-License-Identifier: Apache-2.0

# Tests that run otherwise than they stand there: copies, whose text is changed on the way, and lists
# of tests that do not.
#
#   lockstep_read_patterns(FILE VARIABLE)
#       sets it to the GoogleTest patterns of a list, joined by colons. A line of it is a pattern, a
#       bar between spaces, and why.
#
#   lockstep_copy_test(ORIGINAL COPY TEXT)
#       writes the text if that is a change, and configures again when the original changes.
#
#   lockstep_change_streams(VARIABLE)
#       lets current streams change (drawn_streams.hpp): puts calls of DrawnStreams::change() into the text of a file of tests: between the statements
#       of each test's body and of the loops directly in it, and everywhere after a backward pass, an
#       optimiser's step and zero_grad. Other statements may run within a call of the library. A rank
#       has streams of its own.

function(lockstep_read_patterns file variable)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
  file(STRINGS "${file}" lines)
  list(FILTER lines EXCLUDE REGEX "^#")
  list(TRANSFORM lines REPLACE " \\|.*$" "")
  list(JOIN lines ":" patterns)
  set(${variable} "${patterns}" PARENT_SCOPE)
endfunction()

function(lockstep_copy_test original copy text)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${original}")
  set(before)
  if(EXISTS "${copy}")
    file(READ "${copy}" before)
  endif()
  if(NOT text STREQUAL before)
    file(WRITE "${copy}" "${text}")
  endif()
endfunction()

# Puts `change` before each line of `indent` spaces that begins a statement after another, in each
# part of the text from a line that matches `begin` and opens a block to the line that is `end`.
function(lockstep_put_between variable begin end indent change)
  set(rest "${${variable}}")
  set(done "")
  while(TRUE)
    string(REGEX MATCH "\n${begin}[^\n]*{\n" first "${rest}")
    if(NOT first)
      break()
    endif()
    string(FIND "${rest}" "${first}" first)
    string(SUBSTRING "${rest}" 0 ${first} before)
    string(SUBSTRING "${rest}" ${first} -1 rest)
    string(FIND "${rest}" "\n${end}\n" length)
    string(SUBSTRING "${rest}" 0 ${length} part)
    string(SUBSTRING "${rest}" ${length} -1 rest)
    string(REGEX REPLACE "(;\n+${indent})([A-Za-z_:*(/])" "\\1${change}\\2" part "${part}")
    string(REPLACE "${change}else" "else" part "${part}")
    string(APPEND done "${before}${part}")
  endwhile()
  set(${variable} "${done}${rest}" PARENT_SCOPE)
endfunction()

function(lockstep_change_streams variable)
  # In place of the first line, which is the licence: the others keep their numbers.
  string(FIND "${${variable}}" "\n" first)
  string(SUBSTRING "${${variable}}" ${first} -1 text)
  string(PREPEND text "#include \"support/drawn_streams.hpp\"")
  set(change "::lockstep::testing::DrawnStreams::change(); ")
  foreach(begin IN ITEMS "TEST" "TYPED_TEST")
    lockstep_put_between(text "${begin}" "}" "  " "${change}")
  endforeach()
  foreach(begin IN ITEMS "  for \\(" "  while \\(")
    lockstep_put_between(text "${begin}" "  }" "    " "${change}")
  endforeach()
  string(
    REGEX REPLACE "((\\.backward\\(|\\.step\\(|\\.zero_grad\\()[^\n]*;)\n" "\\1 ${change}\n" text "${text}"
  )
  string(
    REGEX REPLACE "(\\((const )?(distributed::)?ProcessGroup& group\\) {)\n"
    "\\1 const ::lockstep::testing::DrawnStreams streams_of_rank(group.device());\n" text "${text}"
  )
  set(${variable} "${text}" PARENT_SCOPE)
endfunction()
