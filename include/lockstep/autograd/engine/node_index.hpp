// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/engine/pass_vector.hpp>
#include <lockstep/config.hpp>

#include <cstddef>
#include <memory_resource>

namespace lockstep {

class Node;

namespace detail {

// Numbers the nodes of a graph: a hash table in one block of memory, since a pass over a small
// graph should not allocate for each node.
class NodeIndex {
 public:
  static constexpr std::size_t kNone = SIZE_MAX;

  // `memory` has to outlive this object.
  explicit NodeIndex(std::pmr::memory_resource* memory = std::pmr::get_default_resource())
      : slots_(memory) {}

  // The node's number, or kNone.
  std::size_t find(const Node* node) const {
    return slots_.empty() ? kNone : slots_[slot_of(node)].number;
  }

  // The node's number; a node that has none gets `number`.
  std::size_t add(const Node* node, std::size_t number);

 private:
  struct Slot {
    const Node* node = nullptr;
    std::size_t number = kNone;
  };
  static constexpr std::size_t kFirstSize = 16;

  // The slot of the node, or the empty slot for it. At least half of the slots are empty.
  std::size_t slot_of(const Node* node) const;

  void grow();

  PassVector<Slot> slots_;  // none, or a power of two of them
  std::size_t size_ = 0;
};

}  // namespace detail

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/autograd/engine/impl/node_index.ipp>
#endif
