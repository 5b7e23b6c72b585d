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

// Regions of huge pages, and the blocks that are cut from them.
//
// The system hands out 2 MiB page by page in 700 µs, as one huge page in 40. So blocks that are no
// whole number of huge pages share some, one behind the other whatever their sizes. What is cut
// stays cut: a block that is freed is kept for others of its size, and a segment goes back to the
// system only when all of its blocks are idle, so at worst one stays for each block in use.
// (torch.cuda's caching allocator has such segments, too; it also joins idle neighbours again.)
//
// Whoever needs few small blocks should not pay for a huge page: the first segment of all may be a
// small one, in ordinary pages, of which those of a block are cleared when it is cut.
//
// Threads: one at a time, which the allocator's mutex ensures.
class Segments {
 public:
  // segment_bytes: a whole number of huge pages. first_bytes: the size of a segment that is taken
  // while there is no other, for a block that fits in.
  explicit Segments(std::size_t segment_bytes, std::size_t first_bytes = 0)
      : segment_bytes_(segment_bytes), first_bytes_(first_bytes) {}

  // A block of at most a segment's size, cut from a segment that has room or else from a new one of
  // `source`. Null if there is no memory. The block is poisoned, like those that the allocator
  // keeps.
  void* cut(std::size_t bytes, const HostMemorySource& source) {
    const auto has_room = [&](std::span<std::byte> rest) { return rest.size() >= bytes; };
    auto rest = find_if(rests_, has_room);
    if (rest == rests_.end()) {
      if (!add(bytes, source)) return nullptr;
      rest = std::prev(rests_.end());
    }
    std::byte* const data = rest->data();
    *rest = rest->subspan(bytes);
    if (rest->empty()) rests_.erase(rest);
    Segment& segment = of(data);
    ++segment.blocks;
    if (segment.bytes != segment_bytes_ && source.populate != nullptr) source.populate(data, bytes);
    return data;
  }

  std::size_t bytes() const { return bytes_; }

  // Idle memory is given back in three steps: `count_idle` for each idle block, `all_idle` to learn
  // which blocks' memory will be gone, then `release`. No other call may come in between, or a
  // block counts twice.
  void count_idle(void* block) { ++of(block).idle; }
  bool all_idle(void* block) { return of(block).all_idle(); }
  void release(const HostMemorySource& source) noexcept {
    std::erase_if(rests_, [&](std::span<std::byte> rest) { return all_idle(rest.data()); });
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
    std::size_t blocks = 0;  // that have been cut from it
    std::size_t idle = 0;    // of these, while memory is given back
    bool all_idle() const { return idle == blocks; }
  };

  // How many segments' uncut ends are kept for further blocks: those of the newest.
  static constexpr std::size_t kRests = 8;

  // Adds a segment for a block of `least` bytes. False if there is no memory for it, or for its
  // places in the lists, which are made first.
  bool add(std::size_t least, const HostMemorySource& source) {
    try {
      if (segments_.size() == segments_.capacity()) segments_.reserve(2 * segments_.size() + 8);
      rests_.reserve(kRests);
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
    if (rests_.size() == kRests) rests_.erase(rests_.begin());
    rests_.emplace_back(begin, bytes);
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
  std::vector<Segment> segments_;            // in the order of their addresses
  std::vector<std::span<std::byte>> rests_;  // what has not been cut yet, oldest first
};

}  // namespace lockstep::detail
