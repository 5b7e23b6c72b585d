// expect: lockstep needs C\+\+20: compile with -std=c\+\+20
// flag: -std=c++17
// SPDX-License-Identifier: Apache-2.0
#ifdef LOCKSTEP_CONTROL
#include <lockstep/error.hpp>
#else
#include <lockstep/lockstep.hpp>
#endif

int main() {}
