// SPDX-License-Identifier: Apache-2.0
#include "cudasim/memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

namespace cudasim {
namespace {

constexpr std::size_t kDeadBlocks = 4096;  // that are remembered, for the sake of messages
constexpr std::size_t kMark = 64;          // bytes behind a block that nobody may write
constexpr unsigned char kPoison = 0xff;    // of every floating point type it makes a NaN

std::uintptr_t address(const MemoryUse& use) { return reinterpret_cast<std::uintptr_t>(use.data); }

bool has_byte_in(const MemoryUse& use, std::uintptr_t begin, std::uintptr_t end) {
  const std::uintptr_t first = address(use);
  if (begin >= first + extent(use) || end <= first) return false;
  if (use.rows == 1) return true;
  // The row that starts last before `end` is the only one that can reach beyond `begin` and is
  // nearest to it.
  const std::size_t row = std::min((end - 1 - first) / use.pitch, use.rows - 1);
  return first + row * use.pitch + use.bytes > begin;
}

std::size_t mark_bytes(const Block& block) {
  return std::min(kMark, (kPage - block.end() % kPage) % kPage);
}

}  // namespace

std::size_t extent(const MemoryUse& use) { return (use.rows - 1) * use.pitch + use.bytes; }

bool overlap(const MemoryUse& a, const MemoryUse& b) {
  const MemoryUse& few = a.rows <= b.rows ? a : b;
  const MemoryUse& many = a.rows <= b.rows ? b : a;
  if (!has_byte_in(MemoryUse{many.data, extent(many), false}, address(few),
                   address(few) + extent(few))) {
    return false;
  }
  for (std::size_t row = 0; row < few.rows; ++row) {
    const std::uintptr_t begin = address(few) + row * few.pitch;
    if (has_byte_in(many, begin, begin + few.bytes)) return true;
  }
  return false;
}

bool covers(const MemoryUse& outer, const MemoryUse& inner) {
  const std::uintptr_t begin = address(inner);
  if (begin < address(outer) || begin + extent(inner) > address(outer) + extent(outer)) {
    return false;
  }
  if (outer.rows == 1) return true;
  const std::size_t offset = (begin - address(outer)) % outer.pitch;
  if (offset + inner.bytes > outer.bytes) return false;
  return inner.rows == 1 || inner.pitch == outer.pitch;
}

Memory::~Memory() {
  for (const Range& range : ranges_) munmap(reinterpret_cast<void*>(range.begin), range.bytes);
  if (has_key()) pkey_free(key_);
}

void Memory::reserve(std::size_t host_bytes, int devices, std::size_t bytes_each, bool traps) {
  traps_ = traps;
  if (traps) key_ = pkey_alloc(0, PKEY_DISABLE_ACCESS);
  add_range(host_bytes);
  for (int i = 0; i < devices; ++i) add_range(bytes_each);
}

void Memory::add_range(std::size_t bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    throw std::runtime_error("cudasim: no address space of " + std::to_string(bytes) + " bytes");
  }
  // Blocks come in all sizes, and huge pages would make the small ones expensive. A first touch
  // keeps the kernel from giving parts of the range different origins, which it could not join
  // again when they have the same rights.
  madvise(data, bytes, MADV_NOHUGEPAGE);
  *static_cast<volatile char*>(data) = 0;
  mprotect(data, bytes, PROT_NONE);
  ranges_.push_back({reinterpret_cast<std::uintptr_t>(data), bytes, 0});
}

// Moves the cursor to the next place with `bytes` free, past what lives and over what is dead.
bool Memory::make_room(Range& range, std::size_t bytes) {
  for (int turns = 0; turns < 2;) {
    if (range.cursor + bytes > range.bytes) {
      range.cursor = 0;
      ++turns;
      continue;
    }
    auto block = blocks_.lower_bound(range.begin + range.cursor);
    const std::uintptr_t end = range.begin + range.cursor + bytes;
    while (block != blocks_.end() && block->first < end && !block->second.live) {
      block = blocks_.erase(block);
    }
    if (block == blocks_.end() || block->first >= end) return true;
    range.cursor = block->first + pages(block->second.bytes) + kPage - range.begin;
  }
  return false;
}

Block* Memory::allocate(int device, std::size_t bytes) {
  Range& range = ranges_[static_cast<std::size_t>(device + 1)];
  const std::size_t room = pages(bytes) + kPage;
  if (room > range.bytes || !make_room(range, room)) return nullptr;
  const std::uintptr_t begin = range.begin + range.cursor;
  range.cursor += room;
  Block& block = blocks_[begin];
  block = Block{begin, bytes, device};
  // An advice that changes nothing for such memory, but keeps the kernel from joining the block
  // with the unused pages around it whenever both are closed, and parting them again: a quarter of
  // what opening costs.
  if (traps_) madvise(block.data(), pages(bytes), MADV_RANDOM);
  if (device != kHost && (has_key() || !traps_)) {
    rest(block);
    block.rested = true;
  }
  return &block;
}

void Memory::release(Block& block) {
  if (kFibers) {
    // Fresh pages are fresh to ThreadSanitizer, too: whoever gets them next comes after what has
    // been done to these.
    const Unseen unseen;
    mmap(block.data(), pages(block.bytes), PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    madvise(block.data(), pages(block.bytes), MADV_NOHUGEPAGE);  // like those around them
  } else {
    protect(block, Rights::none);
    madvise(block.data(), pages(block.bytes), MADV_DONTNEED);
    if (traps_) madvise(block.data(), pages(block.bytes), MADV_NORMAL);  // one with those around
  }
  block.live = false;
  block.accesses = {};
  block.held = {};
  block.allocated_by = nullptr;
  dead_.push_back(block.begin);
  if (dead_.size() > kDeadBlocks) {
    const auto oldest = blocks_.find(dead_.front());
    if (oldest != blocks_.end() && !oldest->second.live) blocks_.erase(oldest);
    dead_.pop_front();
  }
}

Block* Memory::find(const void* address) {
  const auto value = reinterpret_cast<std::uintptr_t>(address);
  auto next = blocks_.upper_bound(value);
  if (next == blocks_.begin()) return nullptr;
  Block& block = std::prev(next)->second;
  return value < block.end() ? &block : nullptr;
}

bool Memory::reserved(const void* address) const {
  const auto value = reinterpret_cast<std::uintptr_t>(address);
  return std::any_of(ranges_.begin(), ranges_.end(), [value](const Range& range) {
    return value >= range.begin && value - range.begin < range.bytes;
  });
}

void Memory::protect(const Block& block, Rights rights) const {
  const int flags = rights == Rights::none   ? PROT_NONE
                    : rights == Rights::read ? PROT_READ
                                             : PROT_READ | PROT_WRITE;
  if (has_key()) {
    constexpr int kNoKey = 0;
    pkey_mprotect(block.data(), pages(block.bytes), flags, kNoKey);
  } else {
    mprotect(block.data(), pages(block.bytes), flags);
  }
}

void Memory::rest(const Block& block) const {
  if (has_key() && block.device != kHost) {
    pkey_mprotect(block.data(), pages(block.bytes), PROT_READ | PROT_WRITE, key_);
  } else {
    protect(block, resting_rights(block));
  }
}

void Memory::turn_key(bool open) const {
  if (has_key()) pkey_set(key_, open ? 0 : PKEY_DISABLE_ACCESS);
}

Memory::Rights Memory::resting_rights(const Block& block) const {
  if (block.device != kHost) return traps_ ? Rights::none : Rights::write;
  if (block.held_writes > 0) return Rights::none;
  return block.held.empty() ? Rights::write : Rights::read;
}

void Memory::poison(const Block& block) {
  std::memset(block.data(), kPoison, block.bytes + mark_bytes(block));
}

bool Memory::mark_intact(const Block& block) {
  const auto* mark = reinterpret_cast<const unsigned char*>(block.end());
  return std::all_of(mark, mark + mark_bytes(block),
                     [](unsigned char byte) { return byte == kPoison; });
}

}  // namespace cudasim
