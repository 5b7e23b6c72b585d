// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/engine/node_index.hpp>
#include <lockstep/autograd/engine/pass_vector.hpp>

#include <cstddef>
#include <cstdint>

namespace lockstep::detail {

LOCKSTEP_INLINE std::size_t NodeIndex::add(const Node* node, std::size_t number) {
  if (2 * (size_ + 1) > slots_.size()) grow();
  Slot& slot = slots_[slot_of(node)];
  if (slot.node == nullptr) {
    slot = {node, number};
    ++size_;
  }
  return slot.number;
}

LOCKSTEP_INLINE std::size_t NodeIndex::slot_of(const Node* node) const {
  // The upper bits of a product depend on all bits of the address.
  const auto hash = reinterpret_cast<std::uintptr_t>(node) * std::uint64_t{0x9E3779B97F4A7C15};
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = static_cast<std::size_t>(hash >> 32U) & mask;
  while (slots_[slot].node != nullptr && slots_[slot].node != node) slot = (slot + 1) & mask;
  return slot;
}

LOCKSTEP_INLINE void NodeIndex::grow() {
  PassVector<Slot> before(slots_.empty() ? kFirstSize : 2 * slots_.size(), slots_.get_allocator());
  slots_.swap(before);
  for (const Slot& slot : before) {
    if (slot.node != nullptr) slots_[slot_of(slot.node)] = slot;
  }
}

}  // namespace lockstep::detail
