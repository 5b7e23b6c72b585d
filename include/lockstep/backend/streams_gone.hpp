// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/fork_guard.hpp>

#include <atomic>

namespace lockstep::detail {

// True from the end of `main` on in a process that has used a GPU. No other data is published with
// it, so relaxed order is enough.
inline constinit std::atomic<bool> gpus_ending{false};

// True if nobody may ask any more what streams have done: in a forked child, which has neither the
// threads nor the GPUs of its parent, and after `main`, when CUDA may be gone. Memory is not freed
// then.
inline bool streams_are_gone() noexcept {
  return forked() || gpus_ending.load(std::memory_order_relaxed);
}

}  // namespace lockstep::detail
