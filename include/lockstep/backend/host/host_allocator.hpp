// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/host/poison.hpp>
#include <lockstep/backend/memory_stats.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace lockstep::detail {

// What an allocator gets its blocks from.
struct HostMemorySource {
  void* (*take)(std::size_t bytes);  // null if there is none left
  void (*give_back)(void* data);
};

// The process's own memory, in huge pages as far as a block has room for them.
struct OrdinaryMemory {
  static constexpr std::size_t kAlignment = 64;
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;

  static void* take(std::size_t bytes) {
    const std::size_t huge = bytes / kHugePage * kHugePage;
    void* data = nullptr;
    if (::posix_memalign(&data, huge > 0 ? kHugePage : kAlignment, bytes) != 0) return nullptr;
    // Advice: touching fresh memory runs at 27 GB/s with huge pages, at 1.8 GB/s without.
    if (huge > 0) (void)::madvise(data, huge, MADV_HUGEPAGE);
    populate(static_cast<std::byte*>(data) + huge, bytes - huge);
    return data;
  }
  static void give_back(void* data) { std::free(data); }

 private:
  // What is too little for a huge page is touched page by page anyway; asking for all of these
  // pages at once costs half as much. Advice, too.
  static void populate(std::byte* begin, std::size_t bytes) {
#if defined(MADV_POPULATE_WRITE)
    constexpr std::size_t kWorthAsking = std::size_t{64} << 10;
    if (bytes < kWorthAsking) return;
    static const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const auto first = (reinterpret_cast<std::uintptr_t>(begin) + page - 1) / page * page;
    const auto last = (reinterpret_cast<std::uintptr_t>(begin) + bytes) / page * page;
    std::byte* const from = begin + (first - reinterpret_cast<std::uintptr_t>(begin));
    (void)::madvise(from, last - first, MADV_POPULATE_WRITE);
#else
    (void)begin, (void)bytes;
#endif
  }
};

// The memory of one host device: kept and reused, in stream order.
//
// Memory that is handed back to the system and taken again costs 2 µs a page, more than the
// arithmetic done on it; so a freed block stays here, in a list for its size class, last in first
// out. A block that unfinished work may still touch is in a list of its own, with that work's
// events. It is handed out again once they have happened, or earlier to a stream that they precede
// anyway.
//
// Threads: every member may be called from any thread; `mutex_` guards all state. Taking the mutex
// also orders the last use before a free with the first use after the next allocation.
class HostAllocator {
 public:
  explicit HostAllocator(Device device, HostMemorySource source = {&OrdinaryMemory::take,
                                                                   &OrdinaryMemory::give_back})
      : device_(device), source_(source) {}
  HostAllocator(const HostAllocator&) = delete;
  HostAllocator& operator=(const HostAllocator&) = delete;

  // Memory for `user`, aligned to kAlignment. Never null, not even for 0 bytes.
  void* allocate(std::size_t bytes, const StreamState& user) {
    check<Error>(bytes <= PTRDIFF_MAX, "out of memory on ", device_, ": asked for ", bytes,
                 " bytes");
    const SizeClass size = size_class(bytes);
    void* data = nullptr;
    {
      const std::lock_guard lock(mutex_);
      data = take(size, user);
      if (!data) {
        data = take_fresh(size, bytes);
        stats_.reserved_bytes += size.bytes;
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
    put(size, [&](Bin& bin) { bin.idle.push_back(data); });
  }

  // The same; `busy` are the events of work that may touch it.
  void deallocate(void* data, std::size_t bytes, std::vector<EventPtr> busy) noexcept {
    if (busy.empty()) return deallocate(data, bytes);
    put(size_class(bytes), [&](Bin& bin) { bin.busy.push_back({data, std::move(busy)}); });
  }

  // The same, once what the streams hold so far has ended: the one that the memory was allocated
  // on, and those that used it.
  void deallocate(void* data, std::size_t bytes, StreamState& owner,
                  std::span<StreamState* const> used_on) noexcept {
    const auto is_idle = [](const StreamState* stream) { return stream->idle(); };
    if (owner.idle() && std::all_of(used_on.begin(), used_on.end(), is_idle)) {
      return deallocate(data, bytes);
    }
    std::vector<EventPtr> busy;
    try {
      if (!owner.idle()) busy.push_back(owner.record());
      for (StreamState* stream : used_on) {
        if (!stream->idle()) busy.push_back(stream->record());
      }
    } catch (...) {
      return;  // no memory to note the order: the block is lost rather than reused too early
    }
    deallocate(data, bytes, std::move(busy));
  }

  MemoryStats stats() const {
    const std::lock_guard lock(mutex_);
    return stats_;
  }

  // Returns to the system what nobody uses or may still touch.
  void empty_cache() {
    const std::lock_guard lock(mutex_);
    release_cache();
  }

  static constexpr std::size_t kAlignment = OrdinaryMemory::kAlignment;

 private:
  struct BusyBlock {
    void* data;
    std::vector<EventPtr> events;
  };
  struct Bin {
    std::vector<void*> idle;
    std::vector<BusyBlock> busy;
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
    const std::size_t power = static_cast<std::size_t>(std::bit_width(bytes - 1)) - 1;
    const std::size_t step = (std::size_t{1} << power) / 4;
    const std::size_t steps = (bytes - (std::size_t{1} << power) + step - 1) / step;
    const std::size_t bin = (power - 8) * 4 + steps + 3;
    return {bin_bytes(bin), bin};
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
      if (!std::all_of(block->events.begin(), block->events.end(), ready)) continue;
      void* data = block->data;
      bin.busy.erase(std::next(block).base());
      return data;
    }
    return nullptr;
  }

  // Growing a list may fail for want of memory; the block is then lost rather than the process.
  template <class Append>
  void put(SizeClass size, const Append& append) noexcept {
    const std::lock_guard lock(mutex_);
    stats_.allocated_bytes -= size.bytes;
    try {
      append(bins_[size.bin]);
    } catch (...) {
      stats_.reserved_bytes -= size.bytes;
    }
  }

  void* take_fresh(SizeClass size, std::size_t asked) {
    void* data = source_.take(size.bytes);
    if (!data) {
      release_cache();
      data = source_.take(size.bytes);
    }
    check<Error>(data != nullptr, "out of memory on ", device_, ": asked for ", asked,
                 " bytes, with ", stats_.allocated_bytes, " bytes in use");
    poison(data, size.bytes);
    return data;
  }

  void release_cache() {
    const auto happened = [](const EventPtr& event) { return event->query(); };
    for (std::size_t bin = 0; bin < bins_.size(); ++bin) {
      for (void* data : bins_[bin].idle) give_back(data, bin_bytes(bin));
      bins_[bin].idle.clear();
      std::erase_if(bins_[bin].busy, [&](BusyBlock& block) {
        if (!std::all_of(block.events.begin(), block.events.end(), happened)) return false;
        give_back(block.data, bin_bytes(bin));
        return true;
      });
    }
  }
  void give_back(void* data, std::size_t bytes) {
    stats_.reserved_bytes -= bytes;
    unpoison(data, bytes);
    source_.give_back(data);
  }

  static std::size_t bin_bytes(std::size_t bin) {
    if (bin < 4) return (bin + 1) * kAlignment;
    const std::size_t power = (bin - 4) / 4 + 8;
    const std::size_t steps = (bin - 4) % 4 + 1;
    return (std::size_t{1} << power) + steps * ((std::size_t{1} << power) / 4);
  }

  const Device device_;
  const HostMemorySource source_;
  mutable std::mutex mutex_;
  std::array<Bin, 4 * (64 - 7)> bins_;
  MemoryStats stats_;
};

}  // namespace lockstep::detail
