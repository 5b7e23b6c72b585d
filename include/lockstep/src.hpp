// SPDX-License-Identifier: Apache-2.0
#pragma once

// Defines what the other headers declare under LOCKSTEP_SEPARATE_COMPILATION: exactly one file of a
// program, or of a library that it links, includes this header, before any other header of
// lockstep.

#if !defined(LOCKSTEP_SEPARATE_COMPILATION)
#error "lockstep/src.hpp: define LOCKSTEP_SEPARATE_COMPILATION for this file and for all others"
#endif
#if defined(LOCKSTEP_INLINE)
#error "lockstep/src.hpp: no other header of lockstep may be included before it"
#endif

#define LOCKSTEP_SOURCE
#include <lockstep/lockstep.hpp>
