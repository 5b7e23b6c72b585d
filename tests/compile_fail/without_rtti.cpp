// expect: lockstep needs run-time type information: compile without -fno-rtti
// flag: -fno-rtti
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/error.hpp>

int main() {}
