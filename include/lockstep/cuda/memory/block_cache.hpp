// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/backend.hpp>
#include <lockstep/config.hpp>
#include <lockstep/cuda/runtime/error.hpp>
#include <lockstep/device/devices.hpp>

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

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
// A block is left where nobody can tell when it is free, or the runtime does not take it:
// `free_left` tries again. There is room on that list for each block that the runtime has given.
//
// Threads: any; the mutex guards everything. Giving back allocates nothing.
class BlockCache {
 public:
  // `limit` in bytes.
  explicit BlockCache(std::size_t limit) : limit_(limit) { buckets_.fill(kNone); }

  // The limit that LOCKSTEP_CUDA_MEMORY_CACHE gives in MiB, if it does. A DeviceError if that is no
  // such number.
  static std::optional<std::size_t> limit_of_environment() {
    const auto mib =
        lockstep::detail::count_in_environment("LOCKSTEP_CUDA_MEMORY_CACHE", 0, INT_MAX);
    if (!mib) return {};
    return static_cast<std::size_t>(*mib) << 20U;
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
    while (bytes_ + bytes > limit_ || (unused_ == kNone && made_ == kMostBlocks)) {
      if (!give_back_oldest()) return false;
    }
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

  // Gives all blocks back to the runtime, each in the order of its stream, as long as it takes
  // them.
  void release() noexcept {
    const std::lock_guard lock(mutex_);
    while (oldest_ != kNone && give_back_oldest()) {
    }
  }

  // A block that is left, and whom to tell when it no longer is.
  struct Left {
    void* data;
    cudaStream_t stream;
    detail::UsedOn used_on;
    std::size_t bytes;
    std::atomic<std::size_t>* allocated;
  };

  // Makes room for a block that the runtime is about to be asked for; `forget` is called if it
  // gives none, and when it has taken one back.
  void make_room() {
    const std::lock_guard lock(mutex_);
    if (left_.capacity() <= blocks_) left_.reserve(2 * blocks_ + 16);
    ++blocks_;
  }
  void forget() noexcept {
    const std::lock_guard lock(mutex_);
    --blocks_;
  }

  void leave(Left&& block) noexcept {
    const std::lock_guard lock(mutex_);
    left_.push_back(std::move(block));
  }

  // Gives those blocks back to the runtime of which it is true that has_ended(used_on).
  template <class HasEnded>
  void free_left(const HasEnded& has_ended) noexcept {
    std::unique_lock lock(mutex_);
    for (std::size_t n = left_.size(); n > 0 && !left_.empty(); --n) {
      Left block = std::move(left_.front());
      left_.erase(left_.begin());
      lock.unlock();
      const bool taken = has_ended(block.used_on) && give_back(block.data, block.stream);
      lock.lock();
      if (taken) {
        --blocks_;
        block.allocated->fetch_sub(block.bytes, std::memory_order_relaxed);
      } else {
        left_.push_back(std::move(block));
      }
    }
  }

  // Gives one to the runtime; false if it does not take it. What was on a GPU that has failed is
  // gone.
  static bool give_back(void* data, cudaStream_t stream) noexcept {
    const cudaError_t status = cudaFreeAsync(data, stream);
    if (status != cudaSuccess) (void)cudaGetLastError();
    return status == cudaSuccess || is_sticky(status);
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

  // False if the runtime does not take it: it stays.
  bool give_back_oldest() noexcept {
    const Slot slot = slots_[oldest_];
    if (!give_back(slot.data, slot.stream)) return false;
    Index* link = &first_of(slot.bytes, slot.stream);
    while (*link != oldest_) link = &slots_[*link].next;
    (void)remove(link);
    --blocks_;
    return true;
  }

  const std::size_t limit_;
  std::mutex mutex_;
  std::size_t bytes_ = 0;
  Index made_ = 0;
  Index unused_ = kNone;
  Index oldest_ = kNone;
  Index newest_ = kNone;
  std::array<Index, kBuckets> buckets_;
  std::array<Slot, kMostBlocks> slots_;
  std::size_t blocks_ = 0;  // of the runtime, in use or here
  std::vector<Left> left_;  // with room for all of them
};

}  // namespace lockstep::cuda
