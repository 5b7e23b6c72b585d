// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <cstddef>
#include <memory_resource>
#include <vector>

namespace lockstep::detail {

// As std::pmr::polymorphic_allocator, but it leaves construction to the vector: that one's own is
// ten functions more to compile for each type.
template <class T>
struct PassAllocator {
  using value_type = T;

  PassAllocator(std::pmr::memory_resource* resource) : memory(resource) {}
  template <class U>
  PassAllocator(const PassAllocator<U>& other) noexcept : memory(other.memory) {}

  T* allocate(std::size_t count) {
    return static_cast<T*>(memory->allocate(count * sizeof(T), alignof(T)));
  }
  void deallocate(T* data, std::size_t count) noexcept {
    memory->deallocate(data, count * sizeof(T), alignof(T));
  }

  friend bool operator==(const PassAllocator&, const PassAllocator&) = default;

  std::pmr::memory_resource* memory;
};

// A vector that a backward pass makes and drops: its memory is the pass's.
template <class T>
using PassVector = std::vector<T, PassAllocator<T>>;

}  // namespace lockstep::detail
