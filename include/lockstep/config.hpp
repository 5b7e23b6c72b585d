// SPDX-License-Identifier: Apache-2.0
#pragma once

// Every header includes this one before it declares anything. Compilers continue after an #error,
// but stop at an #include that they cannot find.
#if __cplusplus <= 201703L
#error \
    "lockstep needs C++20: compile with -std=c++20, or link lockstep::lockstep, which asks CMake for it"
#include <the_compiler_stops_here_since_lockstep_needs_cxx20>
#endif
#if defined(__GNUC__) && !defined(__cpp_exceptions)
#error "lockstep needs exceptions: compile without -fno-exceptions"
#include <the_compiler_stops_here_since_lockstep_needs_exceptions>
#endif
#if defined(__GNUC__) && !defined(__cpp_rtti)
#error "lockstep needs run-time type information: compile without -fno-rtti"
#include <the_compiler_stops_here_since_lockstep_needs_rtti>
#endif

// Which part of the library a file of a program compiles.
//
// By default lockstep is header-only: each header includes the definitions of what it declares
// (`x.hpp` ends with `x.ipp`), and there is nothing to build or to link.
//
// With LOCKSTEP_SEPARATE_COMPILATION, defined in all files of a program or in none, headers only
// declare, and files compile several times as fast. One file of the program then includes
// lockstep/src.hpp, which defines what the headers declare; in a program that uses GPUs another
// one, compiled by nvcc, includes lockstep/cuda_src.hpp. CMake's targets lockstep::compiled and
// lockstep::cuda_compiled contain these. lockstep::compiled is divided into a few files: each first
// includes the headers of the layers below its own, which then only declare, and then defines
// LOCKSTEP_DEFINITIONS for the headers of its own layers. Templates and one-line functions stay in
// the headers.
//
// A definition in a `.ipp` begins with LOCKSTEP_INLINE, and so does the declaration of a virtual
// function that is defined there; otherwise every file of a header-only program would emit the
// class's virtual table and all functions in it.
//
// nvcc's passes for the GPU compile kernels, which are in headers. They skip the host's
// definitions, which they would parse and drop; but with relocatable device code nvcc wants every
// pass to see the same definitions.
#if !defined(LOCKSTEP_SEPARATE_COMPILATION) && defined(__CUDA_ARCH__) && !defined(__CUDACC_RDC__)
#define LOCKSTEP_CUDA_DEFINITIONS
#define LOCKSTEP_INLINE
#elif !defined(LOCKSTEP_SEPARATE_COMPILATION)
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

// Only a file with LOCKSTEP_SOURCE defines this name, and nothing reads it. If a program neither
// links lockstep::compiled nor includes lockstep/src.hpp, the linker reports it as undefined, even
// if header-only files happen to define everything else.
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
