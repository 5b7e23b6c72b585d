// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/backend.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace lockstep::detail {

// Counts the changes of a variable; shared by all views of it. Whoever writes to the data counts.
struct VersionCounter {
  std::atomic<std::uint64_t> value{0};
};

// True while the calling thread wants page-locked memory (tensor/pin_memory.hpp).
bool& pin_memory_wanted();

// What page-locked memory comes from; null where there is no GPU to copy from it.
MemoryResource* usable_pinned_memory();

// What the calling thread's new memory on `device` comes from.
MemoryResource& memory_of(Device device);

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
  Storage(std::size_t bytes, Stream owner);
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  ~Storage();

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  Device device() const { return owner_.device(); }
  const Stream& owner() const { return owner_; }
  bool is_pinned() const { return &memory_ == pinned_memory.load(std::memory_order_relaxed); }

  // Remembers that work issued to `stream`, from before this call until the storage dies, uses the
  // block.
  void record_stream(const Stream& stream);

  // Remembers that work of `stream` up to the event uses the block, which is not reused before. Who
  // writes to it has been told to wait by other means.
  void keep_until(const Stream& stream, const Event& end);

  // Makes `writer`, about to overwrite the block, wait for every other stream that was recorded.
  void order_write(const Stream& writer);

  VersionCounter version;

 private:
  struct Use {
    Stream stream;
    Event end;
  };

  void order_after_readers(const Stream& writer);

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

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/tensor/storage.ipp>
#endif
