// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <optional>

namespace lockstep::cuda {

// Blocks of one GPU that were given back, for whoever next asks for as many bytes on the same
// stream. A training step asks for the same blocks again and again, and the runtime takes one to
// ten microseconds for each, the more the more threads ask.
//
// The work that a stream is given later comes after all that used the block, so that nobody waits.
// Of more than the limit, or more than kMostBlocks, those that have lain longest go back to the
// runtime. With a limit of 0 nothing is kept, so that tools which look for the use of freed memory
// see every free.
//
// Threads: any; the mutex guards everything. Nothing here allocates, so that giving back cannot
// fail.
class BlockCache {
 public:
  // `limit` in bytes.
  explicit BlockCache(std::size_t limit) : limit_(limit) {}

  // The limit that LOCKSTEP_CUDA_MEMORY_CACHE gives in MiB, if it does.
  static std::optional<std::size_t> limit_of_environment() {
    const char* const text = std::getenv("LOCKSTEP_CUDA_MEMORY_CACHE");
    if (text == nullptr) return {};
    char* end = nullptr;
    const auto mib = std::strtoull(text, &end, 10);
    if (end == text) return {};
    return static_cast<std::size_t>(mib) << 20U;
  }

  // What blocks are rounded up to, so that those of nearly one size serve each other.
  std::size_t rounded(std::size_t bytes) const {
    constexpr std::size_t kUnit = 512;
    const bool as_it_is = limit_ == 0 || bytes > SIZE_MAX - kUnit;
    return as_it_is ? bytes : (bytes + kUnit - 1) / kUnit * kUnit;
  }

  // A block of as many rounded bytes that work on this stream may use; null if there is none.
  void* take(std::size_t bytes, cudaStream_t stream) {
    const std::lock_guard lock(mutex_);
    Index* link = &first_of(bytes, stream);
    while (*link != kNone && !(slots_[*link].bytes == bytes && slots_[*link].stream == stream)) {
      link = &slots_[*link].next;
    }
    if (*link == kNone) return nullptr;
    return remove(link);
  }

  // Keeps a block; false if it is too large for that, and the caller gives it to the runtime.
  bool keep(void* data, std::size_t bytes, cudaStream_t stream) noexcept {
    if (bytes > limit_ / 2) return false;
    const std::lock_guard lock(mutex_);
    while (bytes_ + bytes > limit_ || (unused_ == kNone && made_ == kMostBlocks))
      give_back_oldest();
    Index place = unused_;
    if (place == kNone) {
      place = made_++;
    } else {
      unused_ = slots_[place].next;
    }
    Index& first = first_of(bytes, stream);
    slots_[place] = {data, bytes, stream, first, newest_, kNone};
    first = place;
    (newest_ == kNone ? oldest_ : slots_[newest_].newer) = place;
    newest_ = place;
    bytes_ += bytes;
    return true;
  }

  // Gives all blocks back to the runtime, each in the order of its stream.
  void release() noexcept {
    const std::lock_guard lock(mutex_);
    while (oldest_ != kNone) give_back_oldest();
  }

 private:
  using Index = std::uint16_t;
  static constexpr Index kNone = UINT16_MAX;
  static constexpr Index kMostBlocks = 4096;
  static constexpr std::size_t kBuckets = 1024;

  struct Slot {
    void* data;
    std::size_t bytes;
    cudaStream_t stream;
    Index next;  // of the bucket, or of the slots that are not used
    Index older, newer;
  };

  Index& first_of(std::size_t bytes, cudaStream_t stream) {
    const auto mixed = (bytes / 512) * 31 + reinterpret_cast<std::uintptr_t>(stream) / 64;
    return buckets_[mixed % kBuckets];
  }

  void* remove(Index* link) noexcept {
    const Index place = *link;
    Slot& slot = slots_[place];
    *link = slot.next;
    (slot.older == kNone ? oldest_ : slots_[slot.older].newer) = slot.newer;
    (slot.newer == kNone ? newest_ : slots_[slot.newer].older) = slot.older;
    bytes_ -= slot.bytes;
    slot.next = unused_;
    unused_ = place;
    return slot.data;
  }

  // Ignores errors, as MemoryPool::deallocate does.
  void give_back_oldest() noexcept {
    const Slot slot = slots_[oldest_];
    Index* link = &first_of(slot.bytes, slot.stream);
    while (*link != oldest_) link = &slots_[*link].next;
    if (cudaFreeAsync(remove(link), slot.stream) != cudaSuccess) (void)cudaGetLastError();
  }

  static constexpr std::array<Index, kBuckets> none() {
    std::array<Index, kBuckets> buckets{};
    buckets.fill(kNone);
    return buckets;
  }

  const std::size_t limit_;
  std::mutex mutex_;
  std::size_t bytes_ = 0;
  Index made_ = 0;
  Index unused_ = kNone;
  Index oldest_ = kNone;
  Index newest_ = kNone;
  std::array<Index, kBuckets> buckets_ = none();
  std::array<Slot, kMostBlocks> slots_;
};

}  // namespace lockstep::cuda
