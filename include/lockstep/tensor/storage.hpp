// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/backend.hpp>
#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/device/stream.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <vector>

namespace lockstep::detail {

// Counts the changes of a variable; shared by all views of it. Whoever writes to the data counts.
struct VersionCounter {
  std::atomic<std::uint64_t> value{0};
};

// True while the calling thread wants page-locked memory (tensor/pin_memory.hpp).
inline bool& pin_memory_wanted() {
  static constinit thread_local bool wanted = false;
  return wanted;
}

// What page-locked memory comes from; null where there is no GPU to copy from it.
inline MemoryResource* usable_pinned_memory() {
  MemoryResource* const pinned = pinned_memory.load(std::memory_order_acquire);
  return pinned && device_count(DeviceType::cuda) > 0 ? pinned : nullptr;
}

// What the calling thread's new memory on `device` comes from.
inline MemoryResource& memory_of(Device device) {
  if (pin_memory_wanted() && device.is_host_memory()) [[unlikely]] {
    if (MemoryResource* const pinned = usable_pinned_memory()) return *pinned;
  }
  return backend_of(device);
}

// A block of memory on one device, and who may still be using it.
//
// The block belongs to the stream that it was allocated on: work issued there needs no further
// order among itself. A stream that uses it is recorded; the block is then neither reused, nor
// overwritten by another stream, before that stream's work has ended. That goes for the owner, too,
// where others write: a chunk that scatter made belongs to the copy stream.
//
// Threads: data, bytes and owner never change. `further_` and `kept_` are guarded by `mutex_`.
// `first_`, the first stream that was recorded, is set once and read by anybody; where there is
// another one, which is rare, `has_further_` says so without the lock.
class Storage {
 public:
  Storage(std::size_t bytes, Stream owner)
      : owner_(owner),
        memory_(memory_of(owner.device())),
        bytes_(bytes),
        data_(memory_.allocate(bytes, owner.state())) {}
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  ~Storage() {
    try {
      for (const Use& use : kept_) {
        if (forked()) return;  // it is the parent's
        owner_.wait_event(use.end);
      }
    } catch (const std::exception&) {
      // The device is broken or the process ends, and then the block is left alone.
      return;
    }
    StreamState* const first = first_.load(std::memory_order_relaxed);
    if (further_.empty()) {
      memory_.deallocate(data_, bytes_, owner_.state(), {&first, first ? 1U : 0U});
    } else {
      memory_.deallocate(data_, bytes_, owner_.state(), further_);
    }
  }

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  Device device() const { return owner_.device(); }
  const Stream& owner() const { return owner_; }
  bool is_pinned() const { return &memory_ == pinned_memory.load(std::memory_order_relaxed); }

  // Remembers that work issued to `stream`, from before this call until the storage dies, uses the
  // block.
  void record_stream(const Stream& stream) {
    StreamState* const state = &stream.state();
    StreamState* first = first_.load(std::memory_order_acquire);
    if (first == state) return;
    if (!first && first_.compare_exchange_strong(first, state, std::memory_order_acq_rel)) return;
    if (first == state) return;
    const std::lock_guard lock(mutex_);
    if (further_.empty()) further_.push_back(first);
    if (std::find(further_.begin(), further_.end(), state) != further_.end()) return;
    further_.push_back(state);
    has_further_.store(true, std::memory_order_release);
  }

  // Remembers that work of `stream` up to the event uses the block, which is not reused before. Who
  // writes to it has been told to wait by other means.
  void keep_until(const Stream& stream, const Event& end) {
    if (stream == owner_) return;
    const std::lock_guard lock(mutex_);
    const auto same = [&](const Use& use) { return use.stream == stream; };
    const auto found = std::find_if(kept_.begin(), kept_.end(), same);
    if (found != kept_.end()) {
      found->end = end;
    } else {
      kept_.push_back({stream, end});
    }
  }

  // Makes `writer`, about to overwrite the block, wait for every other stream that was recorded.
  void order_write(const Stream& writer) {
    StreamState* const first = first_.load(std::memory_order_acquire);
    if (!first) return;
    if (has_further_.load(std::memory_order_acquire)) return order_after_readers(writer);
    writer.wait_stream(Stream(*first));
  }

  VersionCounter version;

 private:
  struct Use {
    Stream stream;
    Event end;
  };

  void order_after_readers(const Stream& writer) {
    const std::lock_guard lock(mutex_);
    for (StreamState* reader : further_) writer.wait_stream(Stream(*reader));
  }

  const Stream owner_;
  MemoryResource& memory_;
  const std::size_t bytes_;
  void* const data_;
  std::atomic<StreamState*> first_{nullptr};
  std::atomic<bool> has_further_{false};
  std::mutex mutex_;
  std::vector<StreamState*> further_;  // empty, or all that were recorded, the first in front
  std::vector<Use> kept_;
};

}  // namespace lockstep::detail
