// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/backend/backend.hpp>
#include <lockstep/backend/host/host_allocator.hpp>
#include <lockstep/backend/host/host_memory.hpp>
#include <lockstep/backend/host/poison.hpp>
#include <lockstep/backend/host/segments.hpp>
#include <lockstep/backend/memory_stats.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

namespace lockstep::detail {

LOCKSTEP_INLINE void* HostAllocator::allocate(std::size_t bytes, const StreamState& user) {
  check<Error>(bytes <= PTRDIFF_MAX, "out of memory on ", device_, ": asked for ", bytes, " bytes");
  const SizeClass size = size_class(bytes);
  void* data = nullptr;
  {
    const std::lock_guard lock(mutex_);
    data = take(size, user);
    if (!data && !left_.empty()) {
      take_left();
      data = take(size, user);
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

LOCKSTEP_INLINE void HostAllocator::deallocate(void* data, std::size_t bytes) noexcept {
  const SizeClass size = size_class(bytes);
  poison(data, size.bytes);
  const std::lock_guard lock(mutex_);
  stats_.allocated_bytes -= size.bytes;
  bins_[size.bin].idle.push_back(data);
}

LOCKSTEP_INLINE void HostAllocator::deallocate(void* data, std::size_t bytes,
                                               std::vector<EventPtr> busy) {
  if (busy.empty()) return deallocate(data, bytes);
  const SizeClass size = size_class(bytes);
  const std::lock_guard lock(mutex_);
  bins_[size.bin].busy.push_back({data, std::move(busy)});
  stats_.allocated_bytes -= size.bytes;
}

LOCKSTEP_INLINE void HostAllocator::deallocate(void* data, std::size_t bytes, StreamState& owner,
                                               UsedOn&& used_on) noexcept {
  const auto idle = [](const StreamState* stream) { return stream->idle(); };
  const auto streams = used_on.streams();
  try {
    if (owner.idle() && all_of(streams, idle)) {
      return deallocate(data, bytes);
    }
    std::vector<EventPtr> busy;
    if (!owner.idle()) busy.push_back(owner.record());
    for (StreamState* stream : streams) {
      if (!stream->idle()) busy.push_back(stream->record());
    }
    deallocate(data, bytes, std::move(busy));
  } catch (...) {
    const SizeClass size = size_class(bytes);
    const std::lock_guard lock(mutex_);
    left_.push_back({data, size.bin, &owner, std::move(used_on)});
  }
}

LOCKSTEP_INLINE void HostAllocator::make_room(std::size_t bin) {
  std::vector<void*>& idle = bins_[bin].idle;
  const std::size_t blocks = bins_[bin].blocks + 1;
  if (idle.capacity() < blocks) idle.reserve(2 * blocks);
  if (left_.capacity() <= blocks_) left_.reserve(2 * blocks_ + 1);
}

LOCKSTEP_INLINE void HostAllocator::take_left() noexcept {
  std::erase_if(left_, [this](const LeftBlock& block) {
    const auto idle = [](const StreamState* stream) { return stream->idle(); };
    try {
      const auto streams = block.used_on.streams();
      if (!block.owner->idle() || !all_of(streams, idle)) return false;
    } catch (...) {  // a GPU that has failed: nobody ever knows
      return false;
    }
    poison(block.data, bin_bytes(block.bin));
    stats_.allocated_bytes -= bin_bytes(block.bin);
    bins_[block.bin].idle.push_back(block.data);
    return true;
  });
}

LOCKSTEP_INLINE MemoryStats HostAllocator::stats() const {
  const std::lock_guard lock(mutex_);
  MemoryStats stats = stats_;
  stats.reserved_bytes = reserved_bytes();
  return stats;
}

LOCKSTEP_INLINE void HostAllocator::empty_cache() {
  const std::lock_guard lock(mutex_);
  release_cache();
}

LOCKSTEP_INLINE HostAllocator::SizeClass HostAllocator::size_class(std::size_t bytes) {
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

LOCKSTEP_INLINE void* HostAllocator::take(SizeClass size, const StreamState& user) {
  Bin& bin = bins_[size.bin];
  if (!bin.idle.empty()) {
    void* data = bin.idle.back();
    bin.idle.pop_back();
    return data;
  }
  for (auto block = bin.busy.rbegin(); block != bin.busy.rend(); ++block) {
    const auto ready = [&](const EventPtr& event) { return event->precedes_new_work_of(user); };
    if (!all_known(block->events, ready)) continue;
    void* data = block->data;
    bin.busy.erase(std::next(block).base());
    return data;
  }
  return nullptr;
}

LOCKSTEP_INLINE Segments* HostAllocator::segments_for(std::size_t bytes) {
  constexpr std::size_t kHugePage = OrdinaryMemory::kHugePage;
  if (!source_.in_huge_pages || bytes < kLeastOfSegments) return nullptr;
  if (bytes <= kHugePage / 2) return &medium_;
  return bytes % kHugePage != 0 ? &large_ : nullptr;
}

LOCKSTEP_INLINE void* HostAllocator::take_fresh(SizeClass size, std::size_t asked) {
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
  ++blocks_;
  bins_used_ = std::max(bins_used_, size.bin + 1);
  poison(data, size.bytes);
  return data;
}

LOCKSTEP_INLINE void HostAllocator::release_cache() noexcept {
  const auto happened = [](const EventPtr& event) { return event->query(); };
  take_left();
  for (std::size_t bin = 0; bin < bins_used_; ++bin) {
    for (BusyBlock& block : bins_[bin].busy) {
      block.idle = all_known(block.events, happened);
    }
  }
  release_idle();
}

LOCKSTEP_INLINE void HostAllocator::release_idle() noexcept {
  for (std::size_t bin = 0; bin < bins_used_; ++bin) {
    std::vector<void*>& idle = bins_[bin].idle;
    for (const BusyBlock& block : bins_[bin].busy) {
      if (block.idle) idle.push_back(block.data);
    }
    std::erase_if(bins_[bin].busy, [](const BusyBlock& block) { return block.idle; });
    if (Segments* const segments = segments_for(bin_bytes(bin))) {
      for (void* data : idle) segments->count_idle(data);
    } else {
      stats_.reserved_bytes -= idle.size() * bin_bytes(bin);
      for (void* data : idle) give_back(data, bin_bytes(bin));
      forget(bin, idle.size());
      idle.clear();
    }
  }
  for (std::size_t bin = 0; bin < bins_used_; ++bin) {
    Segments* const segments = segments_for(bin_bytes(bin));
    if (!segments) continue;
    forget(bin,
           std::erase_if(bins_[bin].idle, [&](void* data) { return segments->all_idle(data); }));
  }
  medium_.release(source_);
  large_.release(source_);
}

LOCKSTEP_INLINE void HostAllocator::give_back(void* data, std::size_t bytes) noexcept {
  unpoison(data, bytes);
  source_.give_back(data);
}

LOCKSTEP_INLINE std::size_t HostAllocator::bin_bytes(std::size_t bin) {
  if (bin < 4) return (bin + 1) * kAlignment;
  const std::size_t power = (bin - 4) / 4 + 8;
  const std::size_t steps = (bin - 4) % 4 + 1;
  return (std::size_t{1} << power) + steps * ((std::size_t{1} << power) / 4);
}

}  // namespace lockstep::detail
