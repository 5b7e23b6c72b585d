// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>
#include <vector>

namespace lockstep::detail {

// Gives up a reference to a part of an autograd graph. The parts own one another in chains as long
// as the program that was recorded, so destroying one within the other's destructor would overflow
// the stack; instead the outermost call on a thread destroys them one after the other.
inline void release(std::shared_ptr<void> object) noexcept {
  static constinit thread_local std::vector<std::shared_ptr<void>>* queue = nullptr;
  if (!object) return;
  if (queue) {
    try {
      queue->push_back(std::move(object));
    } catch (...) {
      // No memory for the queue: it is destroyed here, on the stack.
    }
    return;
  }
  std::vector<std::shared_ptr<void>> pending;
  queue = &pending;
  object.reset();
  while (!pending.empty()) {
    object = std::move(pending.back());
    pending.pop_back();
    object.reset();
  }
  queue = nullptr;
}

}  // namespace lockstep::detail
