// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cudasim/operation.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

namespace cudasim {

inline constexpr int kHost = -1;
inline constexpr std::size_t kPage = 4096;

// What an operation touched, and when.
struct Access {
  MemoryUse use;
  std::size_t actor;
  unsigned step;
  OperationPtr by;
};

// True if the two have a byte in common.
bool overlap(const MemoryUse& a, const MemoryUse& b);
// True if every byte of `inner` surely is one of `outer`.
bool covers(const MemoryUse& outer, const MemoryUse& inner);
std::size_t extent(const MemoryUse& use);  // from its first byte to its last

// An allocation, or what was one a while ago.
struct Block {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
  int device = 0;  // or kHost: page-locked
  CUmemPoolHandle_st* pool = nullptr;
  bool live = true;
  bool rested = false;  // has been put to rest since it was allocated or opened for good
  OperationPtr allocated_by{};
  OperationPtr freed_by{};  // from when the free was issued
  std::vector<Access> accesses{};
  // Uses of page-locked memory that the host is not ordered after: it must keep off.
  std::vector<std::pair<MemoryUse, OperationPtr>> held{};
  std::size_t held_writes = 0;  // among those

  void* data() const { return reinterpret_cast<void*>(begin); }
  std::uintptr_t end() const { return begin + bytes; }
};

// The address space of every device and of page-locked memory: one reserved range each, whose
// blocks have pages of their own, with an unused page between. A device's pages are inaccessible
// unless one of its operations runs, if there are traps.
//
// Addresses are handed out in a ring, so that a freed one comes back as late as possible; its pages
// go back to the system at once.
class Memory {
 public:
  Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory();

  void reserve(std::size_t host_bytes, int devices, std::size_t bytes_each, bool traps);

  Block* allocate(int device, std::size_t bytes);  // null: no addresses left
  void release(Block& block);
  // The block around an address, live or not so long dead.
  Block* find(const void* address);
  // Whether an address lies in the range of a device, or of page-locked memory.
  bool reserved(const void* address) const;

  // What every thread may do with a block's pages.
  enum class Rights { none, read, write };
  void protect(const Block& block, Rights rights) const;
  // What it may while no operation runs: with device memory nothing, or all without traps, with
  // page-locked memory what `held` leaves.
  Rights resting_rights(const Block& block) const;
  void rest(const Block& block) const;

  // Where the processor has protection keys, one closes device memory at rest, and a thread turns
  // it in no time. It opens all device memory at once.
  bool has_key() const { return key_ >= 0; }
  bool traps() const { return traps_; }
  void turn_key(bool open) const;

  // Fills a block with NaNs, and what lies between it and its page's end with a mark.
  static void poison(const Block& block);
  static bool mark_intact(const Block& block);

  const std::map<std::uintptr_t, Block>& blocks() const { return blocks_; }

 private:
  struct Range {
    std::uintptr_t begin;
    std::size_t bytes;
    std::size_t cursor;
  };
  static std::size_t pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }
  void add_range(std::size_t bytes);
  bool make_room(Range& range, std::size_t bytes);

  bool traps_ = true;
  int key_ = -1;
  std::vector<Range> ranges_;  // the host's, then the devices'
  std::map<std::uintptr_t, Block> blocks_;
  std::deque<std::uintptr_t> dead_;
};

}  // namespace cudasim
