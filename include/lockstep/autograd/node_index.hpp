// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <cstddef>
#include <memory_resource>

namespace lockstep {

class Node;

namespace detail {

// Which number each node of a graph has: a hash table in one block of memory, since a pass over a
// small graph should not allocate for each node.
class NodeIndex {
 public:
  static constexpr std::size_t kNone = SIZE_MAX;

  // With memory from `memory`, which outlives it.
  explicit NodeIndex(std::pmr::memory_resource* memory = std::pmr::get_default_resource())
      : slots_(memory) {}

  // The node's number, or kNone.
  std::size_t find(const Node* node) const;

  // The node's number, which is `number` if it had none.
  std::size_t add(const Node* node, std::size_t number);

 private:
  struct Slot {
    const Node* node = nullptr;
    std::size_t number = kNone;
  };
  static constexpr std::size_t kFirstSize = 16;

  // Where the node is, or else where it would be. At least half of the slots are empty.
  std::size_t slot_of(const Node* node) const;

  void grow();

  std::pmr::vector<Slot> slots_;  // as many as a power of two, or none
  std::size_t size_ = 0;
};

}  // namespace detail

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/autograd/node_index.ipp>
#endif
