// SPDX-License-Identifier: Apache-2.0
#pragma once

// Replaces the operator new and delete of the whole program by some that count. For one file of it.
#include "support/operator_new.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace lockstep::testing {

inline std::atomic<std::uint64_t> counted_allocations{0};
std::uint64_t operator_new_calls() { return counted_allocations.load(); }

}  // namespace lockstep::testing

// Not inlined: g++ would see memory of `new` go to `free` and warn.
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  lockstep::testing::counted_allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(size == 0 ? 1 : size);
}
[[gnu::noinline]] void* operator new(std::size_t size) {
  void* const memory = operator new(size, std::nothrow);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
