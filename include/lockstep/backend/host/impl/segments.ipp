// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/backend/host/host_memory.hpp>
#include <lockstep/backend/host/poison.hpp>
#include <lockstep/backend/host/segments.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
#include <new>
#include <span>
#include <vector>

namespace lockstep::detail {

LOCKSTEP_INLINE void* Segments::cut(std::size_t bytes, const HostMemorySource& source) {
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

LOCKSTEP_INLINE void Segments::release(const HostMemorySource& source) noexcept {
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

LOCKSTEP_INLINE bool Segments::add(std::size_t least, const HostMemorySource& source) {
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

LOCKSTEP_INLINE std::vector<Segments::Segment>::iterator Segments::after(void* data) {
  const auto begins_behind = [](void* block, const Segment& segment) {
    return std::less<void*>{}(block, segment.begin);
  };
  return std::upper_bound(segments_.begin(), segments_.end(), data, begins_behind);
}

}  // namespace lockstep::detail
