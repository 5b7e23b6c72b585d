// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/runtime/cuda_stream.hpp>
#include <lockstep/cuda/runtime/device_guard.hpp>
#include <lockstep/cuda/runtime/error.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/non_copyable.hpp>

#include <cuda_runtime_api.h>

#include <array>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

namespace lockstep::cuda {

// Page-locked host memory of one device, in blocks of two sizes. Copies from and to ordinary host
// memory go through it, since the GPU's copy engine reaches no other.
//
// A block is used again when the event that was recorded behind its last use has happened. There
// are at most kMostBlocks of each size; whoever needs one more waits for the oldest.
//
// Threads: any; `mutex_` guards all lists. A block that is taken belongs to the thread that took
// it. Lives until the process ends.
class Staging {
 public:
  static constexpr std::size_t kSmall = std::size_t{64} << 10;
  static constexpr std::size_t kLarge = std::size_t{4} << 20;

  explicit Staging(Device device) : device_(device) {}

  // A block of page-locked memory, given back behind what `stream` has been given to do with it.
  class Block : detail::NonCopyable {
   public:
    Block(Staging& staging, std::size_t bytes, CudaStream& stream)
        : staging_(staging),
          stream_(&stream),
          size_class_(bytes <= kSmall ? 0 : 1),
          data_(staging.take(size_class_)) {}
    ~Block() { staging_.give_back(size_class_, data_, *stream_); }

    // From here on `stream`, which has waited for what has used the block so far, uses it.
    void pass_to(CudaStream& stream) { stream_ = &stream; }

    std::byte* data() const { return data_; }

   private:
    Staging& staging_;
    CudaStream* stream_;
    const std::size_t size_class_;
    std::byte* const data_;
  };

 private:
  static constexpr std::size_t kMostBlocks = 8;

  // A block that nobody has: free once the event has happened, or at once without one.
  struct Used {
    std::byte* data;
    detail::EventPtr event;
  };
  struct SizeClass {
    std::vector<Used> used;  // the oldest first
    std::size_t made = 0;
  };

  std::byte* take(std::size_t size_class) {
    std::unique_lock lock(mutex_);
    SizeClass& blocks = classes_[size_class];
    while (true) {
      const bool all_made = blocks.made == kMostBlocks;
      if (!blocks.used.empty() && (all_made || is_free(blocks.used.front()))) {
        Used oldest = std::move(blocks.used.front());
        blocks.used.erase(blocks.used.begin());
        lock.unlock();
        try {
          if (oldest.event) oldest.event->synchronize();
        } catch (...) {  // it may be in use still
          put_back(size_class, std::move(oldest));
          throw;
        }
        return oldest.data;
      }
      if (!all_made) break;
      returned_.wait(lock);
    }
    blocks.used.reserve(kMostBlocks);
    const DeviceGuard guard(device_);  // or a GPU that is not asked for gets a context
    void* data = nullptr;
    check(cudaHostAlloc(&data, size_class == 0 ? kSmall : kLarge, cudaHostAllocPortable),
          "cudaHostAlloc", device_);
    ++blocks.made;
    return static_cast<std::byte*>(data);
  }

  static bool is_free(const Used& block) { return !block.event || block.event->query(); }

  // Never allocates in the list: `take` has reserved a place for each block. Without an event the
  // block is free once the stream has ended, or is broken; where nobody can tell it is not used
  // again, and another may be made in its place.
  void give_back(std::size_t size_class, std::byte* data, CudaStream& stream) noexcept {
    detail::EventPtr event;
    try {
      event = stream.record();
    } catch (...) {
      const cudaError_t ended = cudaStreamSynchronize(stream.bare_handle());
      if (ended != cudaSuccess) {
        (void)cudaGetLastError();
        if (!is_sticky(ended)) data = nullptr;
      }
    }
    put_back(size_class, {data, std::move(event)});
  }

  // With null instead of a block there is one less.
  void put_back(std::size_t size_class, Used block) noexcept {
    {
      const std::lock_guard lock(mutex_);
      SizeClass& blocks = classes_[size_class];
      if (block.data) {
        blocks.used.push_back(std::move(block));
      } else {
        --blocks.made;
      }
    }
    returned_.notify_one();
  }

  const Device device_;
  std::mutex mutex_;
  std::condition_variable returned_;
  std::array<SizeClass, 2> classes_;
};

}  // namespace lockstep::cuda
