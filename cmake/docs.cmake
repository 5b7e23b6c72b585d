# SPDX-License-Identifier: Apache-2.0

# `cmake --build DIR --target docs` makes pages of the headers, README.md, the map and the guides in DIR/docs/html. It
# compiles nothing.
#
# Warnings are errors: a link to a header, a page or a heading that is not there, markup that Doxygen does not know, a
# definition without a declaration. Doxygen does not ask for a comment at each member, since some need none, nor for one
# at each argument, since comments tell of arguments in sentences.

find_package(Doxygen QUIET)

if(NOT DOXYGEN_FOUND)
  add_custom_target(
    docs
    COMMAND "${CMAKE_COMMAND}" -E echo "docs needs Doxygen: sudo apt-get install doxygen, and configure again"
    COMMAND "${CMAKE_COMMAND}" -E false
    VERBATIM
  )
  return()
endif()

set(DOXYGEN_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/docs")
set(DOXYGEN_FILE_PATTERNS *.hpp *.md)
set(DOXYGEN_EXCLUDE_PATTERNS */impl/*)
set(DOXYGEN_EXCLUDE_SYMBOLS std::hash*)
set(DOXYGEN_FILTER_PATTERNS "*.hpp=awk -f cmake/docs/header.awk" "*.md=awk -f cmake/docs/page.awk")
set(DOXYGEN_IMAGE_PATH examples)
set(DOXYGEN_STRIP_FROM_PATH "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}")
set(DOXYGEN_STRIP_FROM_INC_PATH "${PROJECT_SOURCE_DIR}/include")
set(DOXYGEN_USE_MDFILE_AS_MAINPAGE "${PROJECT_SOURCE_DIR}/README.md")

# Headers are read as with LOCKSTEP_SEPARATE_COMPILATION, when they only declare.
set(DOXYGEN_EXPAND_ONLY_PREDEF YES)
set(DOXYGEN_MACRO_EXPANSION YES)
set(DOXYGEN_PREDEFINED LOCKSTEP_HD= LOCKSTEP_INLINE= LOCKSTEP_SEPARATE_COMPILATION LOCKSTEP_TO_BE_WAITED_FOR=)
set(DOXYGEN_SEARCH_INCLUDES NO)
set(DOXYGEN_BUILTIN_STL_SUPPORT YES)

set(DOXYGEN_EXTRACT_ALL YES)
set(DOXYGEN_HIDE_FRIEND_COMPOUNDS YES)
set(DOXYGEN_HIDE_IN_BODY_DOCS YES)
set(DOXYGEN_INLINE_INHERITED_MEMB YES)
set(DOXYGEN_JAVADOC_AUTOBRIEF YES)
set(DOXYGEN_SORT_MEMBER_DOCS NO)
set(DOXYGEN_HAVE_DOT NO)
set(DOXYGEN_QUIET YES)
set(DOXYGEN_VERBATIM_HEADERS NO)

set(DOXYGEN_WARN_AS_ERROR FAIL_ON_WARNINGS)

doxygen_add_docs(
  docs include/lockstep README.md examples/guides
  COMMENT "Pages: ${PROJECT_BINARY_DIR}/docs/html/index.html"
)
