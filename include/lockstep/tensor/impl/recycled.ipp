// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/tensor/recycled.hpp>

#include <cstddef>
#include <new>
#include <utility>

namespace lockstep::detail {

LOCKSTEP_INLINE void* RecycledBlocks::take(std::size_t bytes) {
  List& list = lists_[list_of(bytes)];
  Block* const block = list.first;
  if (block == nullptr) [[unlikely]]
    return ::operator new(bytes_of(bytes));
  list.first = block->next;
  --list.count;
  return block;
}

LOCKSTEP_INLINE void RecycledBlocks::put(void* data, std::size_t bytes) noexcept {
  List& list = lists_[list_of(bytes)];
  if (list.count >= room_) [[unlikely]] {
    if (room_ > 0 || !open()) return ::operator delete(data);
  }
  list.first = ::new (data) Block{list.first};
  ++list.count;
}

LOCKSTEP_INLINE RecycledBlocks::Closer::~Closer() {
  room_ = 0;
  closed_ = true;
  for (List& list : lists_) {
    while (list.first != nullptr) ::operator delete(std::exchange(list.first, list.first->next));
    list.count = 0;
  }
}

LOCKSTEP_INLINE bool RecycledBlocks::open() noexcept {
  if (closed_) return false;
  thread_local const Closer closer;
  (void)closer;
  room_ = kRoom;
  return true;
}

}  // namespace lockstep::detail
