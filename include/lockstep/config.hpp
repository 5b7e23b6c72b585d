// SPDX-License-Identifier: Apache-2.0
#pragma once

// Every header comes here before it declares anything. Compilers go on behind an #error, but not
// behind a file that is not there.
#if __cplusplus <= 201703L
#error \
    "lockstep needs C++20: compile with -std=c++20, or link lockstep::lockstep, which asks CMake for it"
#include <the_compiler_stops_here_since_lockstep_needs_cxx20>
#endif

// What a file of a program compiles of the library.
//
// As it comes, lockstep is header-only: each header includes the definitions of what it declares
// (`x.hpp` ends with `x.ipp`), and there is nothing to build or to link.
//
// Where LOCKSTEP_SEPARATE_COMPILATION is defined, for all files of a program alike, headers only
// declare, and a file compiles several times as fast. What they declare is defined in one file of
// its own that includes lockstep/src.hpp; in a program that runs on GPUs another, compiled by nvcc,
// includes lockstep/cuda_src.hpp. CMake's target lockstep::cuda_compiled has the latter, and
// lockstep::compiled the former in a few files: each includes the headers of the layers below its
// own first, which then only declare, and defines LOCKSTEP_DEFINITIONS for those of its own.
// Templates and what takes a line stay in the headers.
//
// LOCKSTEP_INLINE stands in front of a definition that has moved to a `.ipp`; of a virtual function
// also in front of its declaration: a class has its table, with all that is in it, where the first
// of them that is not inline in the class is defined, and header-only that is in every file.
#if !defined(LOCKSTEP_SEPARATE_COMPILATION)
#define LOCKSTEP_DEFINITIONS
#define LOCKSTEP_CUDA_DEFINITIONS
#define LOCKSTEP_INLINE inline
#else
#if defined(LOCKSTEP_SOURCE)
#define LOCKSTEP_DEFINITIONS
#endif
#if defined(LOCKSTEP_CUDA_SOURCE)
#define LOCKSTEP_CUDA_DEFINITIONS
#endif
#define LOCKSTEP_INLINE
#endif

// What is defined with LOCKSTEP_SOURCE alone: where neither lockstep::compiled is linked nor a file
// includes lockstep/src.hpp, the linker says so by this name, also in a program some of whose files
// are header-only and happen to define what the others use. Nothing reads it.
#if defined(LOCKSTEP_SEPARATE_COMPILATION) && !defined(__CUDACC__)
namespace lockstep::detail {

extern const char link_lockstep_compiled_or_define_LOCKSTEP_SEPARATE_COMPILATION_in_no_file;
#if defined(LOCKSTEP_SOURCE)
const char link_lockstep_compiled_or_define_LOCKSTEP_SEPARATE_COMPILATION_in_no_file = 0;
#endif
[[gnu::used]] static const char* const needs_definitions =
    &link_lockstep_compiled_or_define_LOCKSTEP_SEPARATE_COMPILATION_in_no_file;

}  // namespace lockstep::detail
#endif
