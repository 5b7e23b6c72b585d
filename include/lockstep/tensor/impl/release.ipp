// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/tensor/release.hpp>

#include <array>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep::detail {

LOCKSTEP_INLINE void release(std::shared_ptr<void> object) noexcept {
  // Usually a few; the list is for graphs with many branches.
  struct Pending {
    std::array<std::shared_ptr<void>, 6> few;
    std::size_t count = 0;
    std::vector<std::shared_ptr<void>> many;

    void push(std::shared_ptr<void>&& part) {
      if (count < few.size()) {
        few[count++] = std::move(part);
      } else {
        many.push_back(std::move(part));
      }
    }
    std::shared_ptr<void> pop() {
      if (many.empty()) return count > 0 ? std::move(few[--count]) : nullptr;
      std::shared_ptr<void> part = std::move(many.back());
      many.pop_back();
      return part;
    }
  };
  static constinit thread_local Pending* queue = nullptr;
  // Another reference keeps the object alive.
  if (object.use_count() != 1) return;
  if (queue) {
    try {
      queue->push(std::move(object));
    } catch (...) {
      // There is no memory for the queue: `object` is destroyed here, on the stack.
    }
    return;
  }
  Pending pending;
  queue = &pending;
  while (object) {
    object.reset();
    object = pending.pop();
  }
  queue = nullptr;
}

}  // namespace lockstep::detail
