// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/tensor/random.hpp>

namespace lockstep::io {

// The state of `generator`, and of the random numbers that dropout and replicas draw on every
// device.
//
// After `set_random_state` with it, the next numbers are those that would have followed this call.
// Each rank of a process group has its own numbers, and saves them in a file of its own. No other
// thread may draw meanwhile.
//
// **Torch counterpart.** torch.get_rng_state and torch.cuda.get_rng_state_all.
// **Example.** io::save_checkpoint(path, {.model = state_dict(net), .random = io::random_state()});
StateDict random_state(Generator& generator = default_generator());

// Resets the random numbers to where they were when `random_state` was called.
//
// **Torch counterpart.** torch.set_rng_state and torch.cuda.set_rng_state_all.
// **Threads and exceptions.** A ValueError for an invalid state, which changes nothing.
void set_random_state(const StateDict& state, Generator& generator = default_generator());

}  // namespace lockstep::io

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/io/impl/random_state.ipp>
#endif
