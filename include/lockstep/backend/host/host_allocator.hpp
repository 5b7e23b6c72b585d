// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/backend/backend.hpp>
#include <lockstep/backend/host/host_memory.hpp>
#include <lockstep/backend/host/poison.hpp>
#include <lockstep/backend/host/segments.hpp>
#include <lockstep/backend/memory_stats.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/non_copyable.hpp>

#include <array>
#include <cstddef>
#include <mutex>
#include <vector>

namespace lockstep::detail {

// The memory of one host device: kept and reused, in stream order.
//
// Memory that is handed back to the system and taken again costs 2 µs a page, more than the
// arithmetic done on it; so a freed block stays here, in a list for its size class, last in first
// out. A block that unfinished work may still touch is in a list of its own, with that work's
// events. It is handed out again once they have happened, or earlier to a stream whose new work
// comes after them anyway.
//
// Threads: every member may be called from any thread; `mutex_` guards all state. Taking the mutex
// also orders the last use before a free with the first use after the next allocation.
class HostAllocator : NonCopyable {
 public:
  explicit HostAllocator(Device device, HostMemorySource source = OrdinaryMemory::source())
      : device_(device), source_(source) {}

  // Memory for `user`, aligned to kAlignment. Never null, not even for 0 bytes.
  void* allocate(std::size_t bytes, const StreamState& user);

  // Gives back what `allocate(bytes)` returned and no work may touch any more.
  void deallocate(void* data, std::size_t bytes) noexcept;

  // The same; `busy` are the events of work that may touch it. If it throws, for want of memory,
  // nothing has been given back.
  void deallocate(void* data, std::size_t bytes, std::vector<EventPtr> busy);

  // The same; the work that has been issued to `owner` and to the streams in `used_on` may touch
  // it. Where that cannot be noted, since there is no memory or a GPU's call fails, the block is
  // left until none of these streams has any work.
  void deallocate(void* data, std::size_t bytes, StreamState& owner, UsedOn&& used_on) noexcept;

  MemoryStats stats() const;

  // Returns to the system the blocks that nobody uses and no work may touch; segments only if that
  // is true of all their blocks.
  void empty_cache();

  static constexpr std::size_t kAlignment = OrdinaryMemory::kAlignment;

 private:
  static constexpr std::size_t kLeastOfSegments = std::size_t{64} << 10;
  // As much as the system clears page by page in half the time of a huge page.
  static constexpr std::size_t kFirstSegment = std::size_t{256} << 10;
  static constexpr std::size_t kLargeSegment = std::size_t{16} << 20;
  // Unused bytes behind a block of a segment, so that AddressSanitizer sees writes past its end.
  static constexpr std::size_t kRedZone = kPoisons ? kAlignment : 0;

  struct BusyBlock {
    void* data;
    std::vector<EventPtr> events;
    bool idle = false;  // set while memory is given back: all events have happened
  };
  struct Bin {
    std::vector<void*> idle;  // with room for all of its blocks
    std::vector<BusyBlock> busy;
    std::size_t blocks = 0;  // that the system has given, or a segment
  };
  struct LeftBlock {
    void* data;
    std::size_t bin;
    const StreamState* owner;
    UsedOn used_on;
  };
  struct SizeClass {
    std::size_t bytes;
    std::size_t bin;
  };

  // Four classes to each power of two, so at most a fifth of a block is lost to rounding.
  static SizeClass size_class(std::size_t bytes);

  void* take(SizeClass size, const StreamState& user);

  // Makes room for one more block in the lists in which one never fails to have a place.
  void make_room(std::size_t bin);
  // So many of a bin's blocks are the system's again.
  void forget(std::size_t bin, std::size_t blocks) noexcept {
    bins_[bin].blocks -= blocks;
    blocks_ -= blocks;
  }

  // Makes idle what was left and no stream has any work with any more.
  void take_left() noexcept;

  // The segments that blocks of this size are cut from. Null if the system gives them one by one:
  // small blocks, those that fill their huge pages, as all from 8 MiB on do, and all of a source
  // without huge pages.
  Segments* segments_for(std::size_t bytes);

  void* take_fresh(SizeClass size, std::size_t asked);

  std::size_t reserved_bytes() const {
    return stats_.reserved_bytes + medium_.bytes() + large_.bytes();
  }

  // Whether `ask` is true of all events. If it throws, as it does for a GPU that has failed, nobody
  // knows whether the memory is still in use, and the answer is false.
  template <class Ask>
  static bool all_known(const std::vector<EventPtr>& events, const Ask& ask) noexcept {
    try {
      return all_of(events, ask);
    } catch (...) {
      return false;
    }
  }

  void release_cache() noexcept;

  void release_idle() noexcept;
  void give_back(void* data, std::size_t bytes) noexcept;

  static std::size_t bin_bytes(std::size_t bin);

  const Device device_;
  const HostMemorySource source_;
  mutable std::mutex mutex_;
  std::array<Bin, 4 * (64 - 7)> bins_;
  std::size_t bins_used_ = 0;    // the others have always been empty
  std::size_t blocks_ = 0;       // of all bins
  std::vector<LeftBlock> left_;  // with room for all blocks
  Segments medium_{OrdinaryMemory::kHugePage, kFirstSegment};
  Segments large_{kLargeSegment};
  MemoryStats stats_;  // reserved_bytes: without the segments'
};

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/backend/host/impl/host_allocator.ipp>
#endif
