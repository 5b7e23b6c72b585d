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

// Keeps and reuses the memory of one host device, or page-locked memory, in stream order.
//
// Returning memory to the system and taking it again costs 2 µs a page, more than the arithmetic on
// it. So a freed block stays in a list of its size class. A block that unfinished work may touch is
// in another list with that work's events; it is reused once these have happened, or earlier on a
// stream whose new work comes after them anyway.
//
// Threads: any thread may call any member; `mutex_` guards all state. Taking it also orders the
// last use before a free with the first use after the next allocation.
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
      if (!data && !stranded_.empty()) {
        reclaim_stranded();
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

  // Takes back what `allocate(bytes)` returned and no work may touch any more.
  void deallocate(void* data, std::size_t bytes) noexcept {
    const SizeClass size = size_class(bytes);
    poison(data, size.bytes);
    const std::lock_guard lock(mutex_);
    stats_.allocated_bytes -= size.bytes;
    bins_[size.bin].idle.push_back(data);
  }

  // The same for a block that work with the events `busy` may touch. If memory runs out, it throws
  // and has taken nothing back.
  void deallocate(void* data, std::size_t bytes, std::vector<EventPtr> busy) {
    if (busy.empty()) return deallocate(data, bytes);
    const SizeClass size = size_class(bytes);
    const std::lock_guard lock(mutex_);
    bins_[size.bin].busy.push_back({data, std::move(busy)});
    stats_.allocated_bytes -= size.bytes;
  }

  // The same for a block that work issued to `owner` and to the streams in `used_on` may touch. If
  // the events cannot be recorded, because memory runs out or a GPU's call fails, the block is
  // stranded until all of these streams are idle.
  void deallocate(void* data, std::size_t bytes, StreamState& owner,
                  UsedOn&& used_on) noexcept override {
    if (streams_are_gone()) return;
    try {
      // Usually no stream has work, so no list of events is needed.
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
      stranded_.push_back({data, size.bin, &owner, std::move(used_on)});
    }
  }

  MemoryStats memory_stats(Device) override {
    const std::lock_guard lock(mutex_);
    MemoryStats stats = stats_;
    stats.reserved_bytes = reserved_bytes();
    return stats;
  }

  // Returns idle blocks to the system; segments only if all their blocks are idle.
  void empty_cache(Device) override {
    const std::lock_guard lock(mutex_);
    release_cache();
  }

  static constexpr std::size_t kAlignment = OrdinaryMemory::kAlignment;

 private:
  static constexpr std::size_t kLeastInSegments = std::size_t{64} << 10;
  // The system clears this much page by page in half the time of a huge page.
  static constexpr std::size_t kFirstSegment = std::size_t{256} << 10;
  static constexpr std::size_t kLargeSegment = std::size_t{16} << 20;
  // Unused bytes after a segment's block, so that AddressSanitizer sees writes past its end.
  static constexpr std::size_t kRedZone = kPoisons ? kAlignment : 0;

  struct BusyBlock {
    void* data;
    std::vector<EventPtr> events;
  };
  struct Bin {
    std::vector<void*> idle;  // has room for all of the bin's blocks
    std::vector<BusyBlock> busy;
    std::size_t blocks = 0;  // taken from the system or a segment
  };
  struct StrandedBlock {
    void* data;
    std::size_t bin;
    const StreamState* owner;
    UsedOn used_on;
  };
  struct SizeClass {
    std::size_t bytes;
    std::size_t bin;
  };

  // Four classes per power of two, so rounding wastes at most a fifth of a block.
  static SizeClass size_class(std::size_t bytes) {
    if (bytes <= 4 * kAlignment) {
      const std::size_t units = bytes <= kAlignment ? 1 : (bytes + kAlignment - 1) / kAlignment;
      return {units * kAlignment, units - 1};
    }
    const auto width = static_cast<std::size_t>(std::bit_width(bytes - 1));
    const std::size_t steps = (bytes - 1) >> (width - 3);  // 4 to 7
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

  // Makes room for one more block in the lists that must never fail to take one.
  void make_room(std::size_t bin) {
    std::vector<void*>& idle = bins_[bin].idle;
    const std::size_t blocks = bins_[bin].blocks + 1;
    if (idle.capacity() < blocks) idle.reserve(2 * blocks);
    if (stranded_.capacity() <= blocks_) stranded_.reserve(2 * blocks_ + 1);
  }
  // Notes that so many of a bin's blocks have gone back to the system.
  void forget(std::size_t bin, std::size_t blocks) noexcept {
    bins_[bin].blocks -= blocks;
    blocks_ -= blocks;
  }

  // Makes stranded blocks idle if their streams are.
  void reclaim_stranded() noexcept {
    std::erase_if(stranded_, [this](const StrandedBlock& block) {
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

  // The segments from which blocks of this size are cut. Null if they come from the system one by
  // one: small blocks, those that fill their huge pages, as all from 8 MiB on do, and all blocks of
  // a source without huge pages.
  Segments* segments_for(std::size_t bytes) {
    constexpr std::size_t kHugePage = OrdinaryMemory::kHugePage;
    if (!source_.in_huge_pages || bytes < kLeastInSegments) return nullptr;
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
    reclaim_stranded();
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
    for (std::size_t bin = 0; bin < used_bins_; ++bin) {
      Segments* const segments = segments_for(bin_bytes(bin));
      if (!segments) continue;
      forget(bin,
             std::erase_if(bins_[bin].idle, [&](void* data) { return segments->all_idle(data); }));
    }
    medium_.release(source_);
    large_.release(source_);
  }

  // The inverse of size_class: the size of a bin's blocks.
  static std::size_t bin_bytes(std::size_t bin) {
    return bin < 4 ? (bin + 1) * kAlignment : (bin % 4 + 5) << (bin / 4 + 5);
  }

  const Device device_;
  const HostMemorySource source_;
  std::mutex mutex_;
  std::array<Bin, 4 * (64 - 7)> bins_;
  std::size_t used_bins_ = 0;            // later bins have never had a block
  std::size_t blocks_ = 0;               // in all bins
  std::vector<StrandedBlock> stranded_;  // has room for all blocks
  Segments medium_{OrdinaryMemory::kHugePage, kFirstSegment};
  Segments large_{kLargeSegment};
  MemoryStats stats_;  // reserved_bytes excludes the segments'
};

}  // namespace lockstep::detail
