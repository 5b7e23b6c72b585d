// SPDX-License-Identifier: Apache-2.0

// All of the library, compiled so that no inline function is left out.
#include <lockstep/lockstep.hpp>
