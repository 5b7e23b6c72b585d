// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/backend/host/host_memory.hpp>
#include <lockstep/backend/host/poison.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
#include <new>
#include <span>
#include <vector>

namespace lockstep::detail {

// Regions of huge pages, and the blocks cut from them.
//
// The system provides 2 MiB page by page in 700 µs, but as one huge page in 40. So blocks that are
// no whole number of huge pages share some, one after another whatever their sizes. What is cut
// stays cut: a freed block is kept for others of its size, and a segment goes back to the system
// only when all its blocks are idle.
//
// A program that needs few small blocks should not pay for a huge page, so the very first segment
// may be small and in ordinary pages, which are cleared when a block is cut.
//
// Threads: one at a time, by the allocator's mutex.
class Segments {
 public:
  // segment_bytes is a whole number of huge pages. first_bytes is the size of the first segment, if
  // the block that needs it fits.
  explicit Segments(std::size_t segment_bytes, std::size_t first_bytes = 0)
      : segment_bytes_(segment_bytes), first_bytes_(first_bytes) {}

  // Returns a block of at most a segment's size, cut from a segment with room or from a new one of
  // `source`; null if memory runs out. The block is poisoned, like those that the allocator keeps.
  void* cut(std::size_t bytes, const HostMemorySource& source) {
    const auto has_room = [&](std::span<std::byte> uncut) { return uncut.size() >= bytes; };
    auto uncut = find_if(uncut_, has_room);
    if (uncut == uncut_.end()) {
      if (!add(bytes, source)) return nullptr;
      uncut = std::prev(uncut_.end());
    }
    std::byte* const data = uncut->data();
    *uncut = uncut->subspan(bytes);
    if (uncut->empty()) uncut_.erase(uncut);
    Segment& segment = of(data);
    ++segment.blocks;
    if (segment.bytes != segment_bytes_ && source.populate != nullptr) source.populate(data, bytes);
    return data;
  }

  std::size_t bytes() const { return bytes_; }

  // Idle memory is released in three steps: `count_idle` for each idle block, `all_idle` to learn
  // which blocks' memory will be gone, then `release`. No other call may come in between.
  void count_idle(void* block) { ++of(block).idle; }
  bool all_idle(void* block) { return of(block).all_idle(); }
  void release(const HostMemorySource& source) noexcept {
    std::erase_if(uncut_, [&](std::span<std::byte> uncut) { return all_idle(uncut.data()); });
    for (const Segment& segment : segments_) {
      if (!segment.all_idle()) continue;
      unpoison(segment.begin, segment.bytes);
      source.give_back(segment.begin);
      bytes_ -= segment.bytes;
    }
    std::erase_if(segments_, [](const Segment& segment) { return segment.all_idle(); });
    for (Segment& segment : segments_) segment.idle = 0;
  }

 private:
  struct Segment {
    std::byte* begin;
    std::size_t bytes;
    std::size_t blocks = 0;  // cut from it so far
    std::size_t idle = 0;    // of these, while memory is released
    bool all_idle() const { return idle == blocks; }
  };

  // The uncut ends of so many of the newest segments are kept for further blocks.
  static constexpr std::size_t kMostUncut = 8;

  // Adds a segment for a block of `least` bytes. False if memory runs out, for it or for its places
  // in the lists, which are made first.
  bool add(std::size_t least, const HostMemorySource& source) {
    try {
      if (segments_.size() == segments_.capacity()) segments_.reserve(2 * segments_.size() + 8);
      uncut_.reserve(kMostUncut);
    } catch (const std::bad_alloc&) {
      return false;
    }
    const bool small = segments_.empty() && least <= first_bytes_;
    const std::size_t bytes = small ? first_bytes_ : segment_bytes_;
    auto* const begin = static_cast<std::byte*>(source.take(bytes));
    if (!begin) return false;
    poison(begin, bytes);
    segments_.insert(after(begin), {begin, bytes});
    bytes_ += bytes;
    if (uncut_.size() == kMostUncut) uncut_.erase(uncut_.begin());
    uncut_.emplace_back(begin, bytes);
    return true;
  }

  std::vector<Segment>::iterator after(void* data) {
    const auto begins_behind = [](void* block, const Segment& segment) {
      return std::less<void*>{}(block, segment.begin);
    };
    return std::upper_bound(segments_.begin(), segments_.end(), data, begins_behind);
  }
  Segment& of(void* data) { return *std::prev(after(data)); }

  const std::size_t segment_bytes_;
  const std::size_t first_bytes_;
  std::size_t bytes_ = 0;                    // of all segments
  std::vector<Segment> segments_;            // in order of address
  std::vector<std::span<std::byte>> uncut_;  // uncut ends of segments, oldest first
};

}  // namespace lockstep::detail
