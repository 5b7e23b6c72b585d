// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <vector>

namespace lockstep {

class Node;

namespace detail {

// Numbers the nodes of a graph: a hash table in one block of memory, so that a pass over a small
// graph need not allocate for each node.
class NodeIndex {
 public:
  static constexpr std::size_t kNone = SIZE_MAX;

  // `memory` must outlive this object.
  explicit NodeIndex(std::pmr::memory_resource* memory = std::pmr::get_default_resource())
      : slots_(memory) {}

  // The node's number, or kNone.
  std::size_t find(const Node* node) const {
    return slots_.empty() ? kNone : slots_[slot_of(node)].number;
  }

  // The node's number; a node without one gets `number`.
  std::size_t add(const Node* node, std::size_t number) {
    if (2 * (size_ + 1) > slots_.size()) grow();
    Slot& slot = slots_[slot_of(node)];
    if (slot.node == nullptr) {
      slot = {node, number};
      ++size_;
    }
    return slot.number;
  }

 private:
  struct Slot {
    const Node* node = nullptr;
    std::size_t number = kNone;
  };
  static constexpr std::size_t kFirstSize = 16;

  // The node's slot, or the empty slot for it. At least half of the slots are empty.
  std::size_t slot_of(const Node* node) const {
    // The upper bits of a product depend on all bits of the address.
    const auto hash = reinterpret_cast<std::uintptr_t>(node) * std::uint64_t{0x9E3779B97F4A7C15};
    const std::size_t mask = slots_.size() - 1;
    std::size_t slot = static_cast<std::size_t>(hash >> 32U) & mask;
    while (slots_[slot].node != nullptr && slots_[slot].node != node) slot = (slot + 1) & mask;
    return slot;
  }

  void grow() {
    std::pmr::vector<Slot> before(slots_.empty() ? kFirstSize : 2 * slots_.size(),
                                  slots_.get_allocator());
    slots_.swap(before);
    for (const Slot& slot : before) {
      if (slot.node != nullptr) slots_[slot_of(slot.node)] = slot;
    }
  }

  std::pmr::vector<Slot> slots_;  // none, or a power of two of them
  std::size_t size_ = 0;
};

}  // namespace detail

}  // namespace lockstep
