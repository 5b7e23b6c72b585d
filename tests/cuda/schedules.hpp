// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cudasim/cudasim.hpp>

#include "support/sanitizers.hpp"

#include <gtest/gtest.h>

#include <string>

// The schedules of the simulated GPUs that a test is tried under.
namespace lockstep::testing {

// Runs a body under one schedule. Its failures name the schedule, and so does what the simulator
// finds wrong.
template <class Body>
void under(cudasim::Policy policy, unsigned seed, const Body& body) {
  static const char* const names[] = {"eager", "lazy", "starve", "favour", "random"};
  SCOPED_TRACE("CUDASIM_POLICY=" + std::string(names[static_cast<int>(policy)]) +
               " CUDASIM_SEED=" + std::to_string(seed));
  cudasim::set_policy(policy, -1, seed);
  body();
  for (const std::string& error : cudasim::take_errors()) ADD_FAILURE() << error;
}

// Random schedules, of so many seeds, up to the first that fails.
template <class Body>
void under_seeds(unsigned seeds, const Body& body) {
  for (unsigned i = kFirstShare; i < seeds && !::testing::Test::HasFailure(); i += kShares) {
    under(cudasim::Policy::random, i + 1, body);
  }
}

template <class Body>
void under_each_policy(const Body& body, unsigned seeds = 3) {
  under(cudasim::Policy::eager, 1, body);
  under(cudasim::Policy::lazy, 1, body);
  under_seeds(seeds, body);
}

// So many a test of order is tried under.
inline constexpr unsigned kManySeeds = 200;

template <class Body>
void under_many_schedules(const Body& body) {
  under_each_policy(body, kManySeeds);
}

}  // namespace lockstep::testing
