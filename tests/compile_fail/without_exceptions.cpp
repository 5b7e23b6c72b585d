// expect: lockstep needs exceptions: compile without -fno-exceptions
// flag: -fno-exceptions
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/error.hpp>

int main() {}
