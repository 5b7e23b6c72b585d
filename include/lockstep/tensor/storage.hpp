// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/backend.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/non_copyable.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

namespace lockstep::detail {

// Counts the changes of a tensor's data; all its views share it. Every writer adds one.
struct VersionCounter {
  std::atomic<std::uint64_t> value{0};
};

// True while the calling thread wants page-locked memory (tensor/pin_memory.hpp).
inline bool& pin_memory_wanted() {
  static constinit thread_local bool wanted = false;
  return wanted;
}

// The source of page-locked memory; null without a GPU.
MemoryResource* usable_pinned_memory();

// The source of the calling thread's new memory on `device`.
MemoryResource& memory_of(Device device);

// A block of memory on one device, and the streams that may still be using it.
//
// The block belongs to the stream it was allocated on, whose work runs in order and needs no more.
// Any other stream that uses the block is recorded: until its work has ended, the block is not
// reused, and no other stream overwrites it. The owner itself is recorded when it reads a block
// that other streams write, such as scatter's chunks, which belong to the copy stream.
//
// Threads: data, bytes and owner never change. `mutex_` guards `further_` and `kept_`. Any thread
// reads `first_`, the first recorded stream, which is set once, and `has_further_`, which says
// whether there are more; that is rare.
class Storage : NonCopyable {
 public:
  Storage(std::size_t bytes, Stream owner) : Storage(memory_of(owner.device()), bytes, owner) {}
  // A block that the storage gives back to `memory`; with `lent` it is another allocator's.
  Storage(void* data, std::size_t bytes, Stream owner, BlockOwner& memory, bool lent = true)
      : owner_(owner), memory_(memory), bytes_(bytes), lent_(lent), data_(data) {}
  ~Storage();

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  Device device() const { return owner_.device(); }
  const Stream& owner() const { return owner_; }
  // True if the block is another allocator's.
  bool is_lent() const { return lent_; }
  bool is_pinned() const { return &memory_ == pinned_memory.load(std::memory_order_relaxed); }

  // Records that work of `stream` uses the block: work issued before this call, or later while the
  // storage lives.
  void record_stream(const Stream& stream);

  // Records that work of `stream` up to `end` uses the block, so that it is not reused before;
  // without an `end`, all work that the stream has when the storage is destroyed. `order_write`
  // does not wait for it: the caller orders writers by other means. Allocates nothing after
  // `expect_use` for that stream.
  void keep_until(const Stream& stream, const std::optional<Event>& end);
  void expect_use(const Stream& stream);

  // Makes `writer`, which is about to overwrite the block, wait for every recorded stream but
  // itself.
  void order_write(const Stream& writer);

  VersionCounter version;

 private:
  struct Use {
    Stream stream;
    std::optional<Event> end;
  };

  Storage(MemoryResource& memory, std::size_t bytes, Stream owner)
      : Storage(memory.allocate(bytes, owner.state()), bytes, owner, memory, false) {}

  // Called with `mutex_` locked.
  Use& use_of(const Stream& stream);
  // Makes room in `further_` for one more stream and those in `kept_`, which the destructor may
  // add.
  void make_room() { further_.reserve(further_.size() + kept_.size() + 2); }

  const Stream owner_;
  BlockOwner& memory_;
  const std::size_t bytes_;
  const bool lent_;
  void* const data_;
  std::atomic<StreamState*> first_{nullptr};
  std::atomic<bool> has_further_{false};
  std::mutex mutex_;
  std::vector<StreamState*> further_;  // empty, or all recorded streams, `first_` in front
  std::vector<Use> kept_;
};

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/tensor/impl/storage.ipp>
#endif
