// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/parallel/bucket.hpp>
#include <lockstep/parallel/powersgd_state.hpp>

#include <memory>

// PowerSGD (Vogels, Karimireddy and Jaggi, 2019): gradients that are matrices are sent as the
// product of two thin ones.
namespace lockstep::ddp_comm_hooks {

// The mean over the ranks of gradients, each compressed to a product of two thin matrices.
//
// A gradient is taken as a matrix of as many rows as its first dimension has; vectors, and matrices
// for which it does not pay, are sent as they are. What a pass loses is added to the next one's
// gradient. Memory: for each compressed gradient the error, which is as large, and while its bucket
// is being reduced the gradient again.
//
// **Torch counterpart.** powerSGD_hook. Errors belong to parameters, not to buckets, and what is
// sent as it is has none; half precision is compressed in f32.
// **Devices and streams.** On the gradients' device. Two collectives a bucket for the thin
// matrices, of which the second one starts at the end of backward, and one for the rest.
// **Threads and exceptions.** As CommHook. Every rank gets the same bits.
// **Example.**
//   const auto state = std::make_shared<ls::ddp_comm_hooks::PowerSGDState>(
//       group, ls::ddp_comm_hooks::PowerSGDOptions{.matrix_approximation_rank = 2});
//   model.register_comm_hook(ls::ddp_comm_hooks::powerSGD_hook(state));
CommHook powerSGD_hook(std::shared_ptr<PowerSGDState> state);

}  // namespace lockstep::ddp_comm_hooks

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/impl/powersgd_hook.ipp>
#endif
