// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/tensor/recycled.hpp>
#include <lockstep/tensor/release.hpp>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep::detail {

LOCKSTEP_INLINE void release(std::shared_ptr<void> object) noexcept {
  constexpr std::size_t kUsual = 6;
  using Pending = std::vector<std::shared_ptr<void>, RecyclingAllocator<std::shared_ptr<void>>>;
  static constinit thread_local Pending* queue = nullptr;
  // Other references keep the object alive.
  if (object.use_count() != 1) return;
  if (queue) {
    try {
      if (queue->capacity() == 0) queue->reserve(kUsual);
      queue->push_back(std::move(object));
    } catch (...) {
      // There is no memory for the queue: `object` is destroyed here, within the others.
    }
    return;
  }
  Pending pending;
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
