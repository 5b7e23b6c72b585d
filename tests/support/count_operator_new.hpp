// SPDX-License-Identifier: Apache-2.0
#pragma once

// Replaces the operator new and delete of the whole program by some that count, and that fail when
// a test says so; and what host tensors take their memory from by one that fails likewise. For one
// file of it.
#include "support/allocation_faults.hpp"
#include "support/operator_new.hpp"

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

// On simulated GPUs calls of CUDA, NCCL and their like are counted among what needs memory.
#ifdef LOCKSTEP_TEST_SIMULATED_GPUS
#include <cudasim/cudasim.hpp>
#endif

namespace lockstep::testing {

inline std::atomic<std::uint64_t> counted_allocations{0};
std::uint64_t operator_new_calls() { return counted_allocations.load(); }

// Of OutOfMemory: the number of the first that fails, 0 without one.
inline std::atomic<std::uint64_t> first_failure{0};
inline std::atomic<bool> failure_lasts{false};
inline std::atomic<bool> failure_struck{false};
inline std::atomic<std::uint64_t> allocations_tried{0};

inline bool place_fails() noexcept {
  const std::uint64_t first = first_failure.load(std::memory_order_relaxed);
  if (first == 0) return false;
  const std::uint64_t number = allocations_tried.fetch_add(1, std::memory_order_relaxed) + 1;
  if (number < first || (number > first && !failure_lasts)) return false;
  failure_struck = true;
  return true;
}
LOCKSTEP_NOT_FOR_TSAN inline bool allocation_fails() noexcept {
  return allocations_of_others == 0 && place_fails();
}

OutOfMemory::OutOfMemory(std::uint64_t nth, bool lasting) {
#ifdef LOCKSTEP_TEST_SIMULATED_GPUS
  cudasim::fail_calls(&place_fails, cudaErrorMemoryAllocation);
#endif
  failure_lasts = lasting;
  failure_struck = false;
  allocations_tried = 0;
  first_failure = nth;
}
OutOfMemory::~OutOfMemory() { first_failure = 0; }
bool OutOfMemory::has_struck() { return failure_struck; }

}  // namespace lockstep::testing

// Not inlined: g++ would see memory of `new` go to `free` and warn.
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  lockstep::testing::counted_allocations.fetch_add(1, std::memory_order_relaxed);
  if (lockstep::testing::allocation_fails() || lockstep::testing::allocation_faults.fails()) {
    return nullptr;
  }
  return std::malloc(size == 0 ? 1 : size);
}
[[gnu::noinline]] void* operator new(std::size_t size) {
  void* const memory = operator new(size, std::nothrow);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t alignment) {
  lockstep::testing::counted_allocations.fetch_add(1, std::memory_order_relaxed);
  const auto step = static_cast<std::size_t>(alignment);
  void* const memory = lockstep::testing::allocation_fails()
                           ? nullptr
                           : std::aligned_alloc(step, (size + step - 1) / step * step);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

extern "C" int posix_memalign(void** memory, std::size_t alignment, std::size_t size) noexcept {
  if (lockstep::testing::allocation_fails()) return ENOMEM;
  *memory = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  return *memory != nullptr ? 0 : ENOMEM;
}
