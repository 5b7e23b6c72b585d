// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/backend/backend.hpp>
#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/backend/host/host_memory.hpp>
#include <lockstep/backend/host/poison.hpp>
#include <lockstep/backend/host/segments.hpp>
#include <lockstep/backend/memory_stats.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

namespace lockstep::detail {

// The memory of one host device, or page-locked memory: kept and reused, in stream order.
//
// Memory that is handed back to the system and taken again costs 2 µs a page, more than the
// arithmetic done on it; so a freed block stays here, in a list for its size class, last in first
// out. A block that unfinished work may still touch is in a list of its own, with that work's
// events. It is handed out again once they have happened, or earlier to a stream whose new work
// comes after them anyway.
//
// Threads: every member may be called from any thread; `mutex_` guards all state. Taking the mutex
// also orders the last use before a free with the first use after the next allocation.
class HostAllocator final : public MemoryResource {
 public:
  explicit HostAllocator(Device device, HostMemorySource source = OrdinaryMemory::source())
      : device_(device), source_(source) {}

  // Aligned to kAlignment. Never null, not even for 0 bytes.
  void* allocate(std::size_t bytes, StreamState& owner) override {
    check_not_forked();
    check<Error>(bytes <= PTRDIFF_MAX, "out of memory on ", device_, ": asked for ", bytes,
                 " bytes");
    const SizeClass size = size_class(bytes);
    void* data = nullptr;
    {
      const std::lock_guard lock(mutex_);
      data = take(size, owner);
      if (!data && !left_.empty()) {
        make_left_idle();
        data = take(size, owner);
      }
      if (!data) {
        data = take_fresh(size, bytes);
        ++stats_.fresh_allocations;
      }
      ++stats_.allocations;
      stats_.allocated_bytes += size.bytes;
      stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.allocated_bytes);
    }
    unpoison(data, bytes);
    return data;
  }

  // Gives back what `allocate(bytes)` returned and no work may touch any more.
  void deallocate(void* data, std::size_t bytes) noexcept {
    const SizeClass size = size_class(bytes);
    poison(data, size.bytes);
    const std::lock_guard lock(mutex_);
    stats_.allocated_bytes -= size.bytes;
    bins_[size.bin].idle.push_back(data);
  }

  // The same; `busy` are the events of work that may touch it. If it throws, for want of memory,
  // nothing has been given back.
  void deallocate(void* data, std::size_t bytes, std::vector<EventPtr> busy) {
    if (busy.empty()) return deallocate(data, bytes);
    const SizeClass size = size_class(bytes);
    const std::lock_guard lock(mutex_);
    bins_[size.bin].busy.push_back({data, std::move(busy)});
    stats_.allocated_bytes -= size.bytes;
  }

  // The same; the work that has been issued to `owner` and to the streams in `used_on` may touch
  // it. Where that cannot be noted, since there is no memory or a GPU's call fails, the block is
  // left until none of these streams has any work.
  void deallocate(void* data, std::size_t bytes, StreamState& owner,
                  UsedOn&& used_on) noexcept override {
    if (streams_are_gone()) return;
    try {
      // Usually no stream has any work, and no list of events need be made.
      const auto idle = [](const StreamState* stream) { return stream->idle(); };
      if (owner.idle() && all_of(used_on.streams(), idle)) [[likely]]
        return deallocate(data, bytes);
      std::vector<EventPtr> busy;
      if (!owner.idle()) busy.push_back(owner.record());
      for (StreamState* stream : used_on.streams()) {
        if (!stream->idle()) busy.push_back(stream->record());
      }
      deallocate(data, bytes, std::move(busy));
    } catch (...) {
      const SizeClass size = size_class(bytes);
      const std::lock_guard lock(mutex_);
      left_.push_back({data, size.bin, &owner, std::move(used_on)});
    }
  }

  MemoryStats memory_stats(Device) override {
    const std::lock_guard lock(mutex_);
    MemoryStats stats = stats_;
    stats.reserved_bytes = reserved_bytes();
    return stats;
  }

  // Returns to the system the blocks that nobody uses and no work may touch; segments only if that
  // is true of all their blocks.
  void empty_cache(Device) override {
    const std::lock_guard lock(mutex_);
    release_cache();
  }

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
  static SizeClass size_class(std::size_t bytes) {
    if (bytes <= 4 * kAlignment) {
      const std::size_t units = bytes <= kAlignment ? 1 : (bytes + kAlignment - 1) / kAlignment;
      return {units * kAlignment, units - 1};
    }
    const auto width = static_cast<std::size_t>(std::bit_width(bytes - 1));
    const std::size_t steps = (bytes - 1) >> (width - 3);
    return {(steps + 1) << (width - 3), 4 * (width - 9) + steps};
  }

  void* take(SizeClass size, const StreamState& user) {
    Bin& bin = bins_[size.bin];
    if (!bin.idle.empty()) {
      void* data = bin.idle.back();
      bin.idle.pop_back();
      return data;
    }
    for (auto block = bin.busy.rbegin(); block != bin.busy.rend(); ++block) {
      const auto ready = [&](const EventPtr& event) { return event->precedes_new_work_of(user); };
      if (!is_known([&] { return all_of(block->events, ready); })) continue;
      void* data = block->data;
      bin.busy.erase(std::next(block).base());
      return data;
    }
    return nullptr;
  }

  // Makes room for one more block in the lists in which one never fails to have a place.
  void make_room(std::size_t bin) {
    std::vector<void*>& idle = bins_[bin].idle;
    const std::size_t blocks = bins_[bin].blocks + 1;
    if (idle.capacity() < blocks) idle.reserve(2 * blocks);
    if (left_.capacity() <= blocks_) left_.reserve(2 * blocks_ + 1);
  }
  // So many of a bin's blocks are the system's again.
  void forget(std::size_t bin, std::size_t blocks) noexcept {
    bins_[bin].blocks -= blocks;
    blocks_ -= blocks;
  }

  // Makes idle the blocks of `left_` that no stream has any work with any more.
  void make_left_idle() noexcept {
    std::erase_if(left_, [this](const LeftBlock& block) {
      const auto idle = [](const StreamState* stream) { return stream->idle(); };
      if (!is_known([&] { return block.owner->idle() && all_of(block.used_on.streams(), idle); })) {
        return false;
      }
      poison(block.data, bin_bytes(block.bin));
      stats_.allocated_bytes -= bin_bytes(block.bin);
      bins_[block.bin].idle.push_back(block.data);
      return true;
    });
  }

  // The segments that blocks of this size are cut from. Null if the system gives them one by one:
  // small blocks, those that fill their huge pages, as all from 8 MiB on do, and all of a source
  // without huge pages.
  Segments* segments_for(std::size_t bytes) {
    constexpr std::size_t kHugePage = OrdinaryMemory::kHugePage;
    if (!source_.in_huge_pages || bytes < kLeastOfSegments) return nullptr;
    if (bytes <= kHugePage / 2) return &medium_;
    return bytes % kHugePage != 0 ? &large_ : nullptr;
  }

  void* take_fresh(SizeClass size, std::size_t asked) {
    make_room(size.bin);
    Segments* const segments = segments_for(size.bytes);
    const auto take = [&] {
      return segments ? segments->cut(size.bytes + kRedZone, source_) : source_.take(size.bytes);
    };
    void* data = take();
    if (!data) {
      release_cache();
      data = take();
    }
    check<Error>(data != nullptr, "out of memory on ", device_, ": asked for ", asked,
                 " bytes, with ", stats_.allocated_bytes, " bytes in use of ", reserved_bytes(),
                 " reserved");
    if (!segments) stats_.reserved_bytes += size.bytes;
    ++bins_[size.bin].blocks;
    used_bins_ = std::max(used_bins_, size.bin + 1);
    ++blocks_;
    poison(data, size.bytes);
    return data;
  }

  std::size_t reserved_bytes() const {
    return stats_.reserved_bytes + medium_.bytes() + large_.bytes();
  }

  void release_cache() noexcept {
    const auto happened = [](const EventPtr& event) { return event->query(); };
    make_left_idle();
    for (std::size_t bin = 0; bin < used_bins_; ++bin) {
      std::vector<void*>& idle = bins_[bin].idle;
      std::erase_if(bins_[bin].busy, [&](const BusyBlock& block) {
        const bool ended = is_known([&] { return all_of(block.events, happened); });
        if (ended) idle.push_back(block.data);
        return ended;
      });
      if (Segments* const segments = segments_for(bin_bytes(bin))) {
        for (void* data : idle) segments->count_idle(data);
      } else {
        stats_.reserved_bytes -= idle.size() * bin_bytes(bin);
        for (void* data : idle) {
          unpoison(data, bin_bytes(bin));
          source_.give_back(data);
        }
        forget(bin, idle.size());
        idle.clear();
      }
    }
    if (medium_.bytes() + large_.bytes() == 0) return;
    for (std::size_t bin = 0; bin < used_bins_; ++bin) {
      Segments* const segments = segments_for(bin_bytes(bin));
      if (!segments) continue;
      forget(bin,
             std::erase_if(bins_[bin].idle, [&](void* data) { return segments->all_idle(data); }));
    }
    medium_.release(source_);
    large_.release(source_);
  }

  // What size_class says of a bin's blocks.
  static std::size_t bin_bytes(std::size_t bin) {
    return bin < 4 ? (bin + 1) * kAlignment : (bin % 4 + 5) << (bin / 4 + 5);
  }

  const Device device_;
  const HostMemorySource source_;
  std::mutex mutex_;
  std::array<Bin, 4 * (64 - 7)> bins_;
  std::size_t used_bins_ = 0;    // no bin behind these has had a block
  std::size_t blocks_ = 0;       // of all bins
  std::vector<LeftBlock> left_;  // with room for all blocks
  Segments medium_{OrdinaryMemory::kHugePage, kFirstSegment};
  Segments large_{kLargeSegment};
  MemoryStats stats_;  // reserved_bytes: without the segments'
};

}  // namespace lockstep::detail
