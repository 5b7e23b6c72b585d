// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/host/poison.hpp>
#include <lockstep/config.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace lockstep::detail {

// Small blocks of memory that the calling thread has freed and keeps for reuse.
//
// A training step makes and destroys the same few hundred handles, storages and nodes each time.
// malloc keeps seven blocks of a size for a thread, fewer than one step of the smallest model uses;
// taking and returning a block here is a few instructions.
//
// Threads: each thread has its own lists; a block goes to the thread that frees it. The lists are
// freed when the thread ends. What is freed after that, by destructors of other thread-local or
// static objects, is not kept.
class RecycledBlocks {
 public:
  // 0 with AddressSanitizer, which must see each block freed.
  static constexpr std::size_t kLargest = kPoisons ? 0 : 512;

  static void* take(std::size_t bytes);

  static void put(void* data, std::size_t bytes) noexcept;

 private:
  struct Block {
    Block* next;
  };
  struct List {
    Block* first;
    std::uint32_t count;
  };
  // Frees all blocks when the thread ends.
  struct Closer {
    ~Closer();
  };

  static constexpr std::size_t kStep = 32;
  static constexpr std::uint32_t kRoom = 128;  // most blocks that a list keeps

  static constexpr std::size_t list_of(std::size_t bytes) { return (bytes - 1) / kStep; }
  static constexpr std::size_t bytes_of(std::size_t bytes) { return (list_of(bytes) + 1) * kStep; }

  // Lets this thread's lists keep blocks. False if the thread is ending.
  static bool open() noexcept;

  inline static constinit thread_local std::array<List, 512 / kStep> lists_{};
  inline static constinit thread_local std::uint32_t room_ = 0;  // 0: not open yet, or closed
  inline static constinit thread_local bool closed_ = false;
};

// An allocator of recycled blocks, for std::allocate_shared, which puts an object and its counts
// into one block, and for short vectors.
template <class T>
struct RecyclingAllocator {
  using value_type = T;

  RecyclingAllocator() = default;
  template <class U>
  RecyclingAllocator(const RecyclingAllocator<U>&) noexcept {}

  T* allocate(std::size_t count) {
    if (is_recycled(count)) return static_cast<T*>(RecycledBlocks::take(count * sizeof(T)));
    return std::allocator<T>().allocate(count);
  }
  void deallocate(T* data, std::size_t count) noexcept {
    if (is_recycled(count)) return RecycledBlocks::put(data, count * sizeof(T));
    std::allocator<T>().deallocate(data, count);
  }

  friend bool operator==(const RecyclingAllocator&, const RecyclingAllocator&) { return true; }

 private:
  static constexpr bool is_recycled(std::size_t count) {
    return alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__ && count > 0 &&
           count <= RecycledBlocks::kLargest / sizeof(T);
  }
};

// As std::make_shared.
template <class T, class... Args>
std::shared_ptr<T> make_recycled(Args&&... args) {
  return std::allocate_shared<T>(RecyclingAllocator<T>(), std::forward<Args>(args)...);
}

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/tensor/impl/recycled.ipp>
#endif
