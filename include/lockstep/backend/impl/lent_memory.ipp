// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/backend/host/host_stream.hpp>
#include <lockstep/backend/lent_memory.hpp>
#include <lockstep/device/device.hpp>

#include <map>
#include <memory>
#include <mutex>

namespace lockstep::detail {

// The queue of those who wait for work of `stream`, which ends in the order of the queue: no block
// waits behind one that other work uses.
LOCKSTEP_INLINE HostStream& queue_behind(StreamState& stream) {
  static std::mutex& mutex = *new std::mutex;
  static auto& queues = *new std::map<StreamState*, std::unique_ptr<HostStream>>;
  const std::lock_guard lock(mutex);
  auto& queue = queues[&stream];
  if (!queue) queue = std::make_unique<HostStream>(Device(), HostStream::Mode::queued);
  return *queue;
}

LOCKSTEP_INLINE BlockOwner& LentMemory::unowned() {
  class Unowned final : public BlockOwner {
    void deallocate(void*, std::size_t, StreamState&, UsedOn&&) noexcept override {}
  };
  static BlockOwner& unowned = *new Unowned;
  return unowned;
}

LOCKSTEP_INLINE void LentMemory::deallocate(void* data, std::size_t, StreamState& owner,
                                            UsedOn&& used_on) noexcept {
  if (streams_are_gone()) return;
  data_ = data;
  try {
    note(owner);
    for (StreamState* stream : used_on.streams()) note(*stream);
  } catch (...) {
    return;  // a GPU has failed, or there is no memory to note the order
  }
  give_back();
}

LOCKSTEP_INLINE void LentMemory::note(StreamState& stream) {
  if (!stream.idle()) uses_.push_back({&stream, stream.record()});
}

LOCKSTEP_INLINE void LentMemory::give_back() noexcept {
  while (!uses_.empty()) {
    try {
      queue_behind(*uses_.back().stream).submit([this] {
        if (wait_for_last()) give_back();
      });
      return;
    } catch (...) {  // there is no memory for a place in the queue, or no thread
      if (!wait_for_last()) return;
    }
  }
  deleter_(data_);
  delete this;
}

LOCKSTEP_INLINE bool LentMemory::wait_for_last() noexcept {
  const EventPtr end = std::move(uses_.back().end);
  uses_.pop_back();
  try {
    end->synchronize();
    return true;
  } catch (...) {
  }
  try {
    return end->query();  // results may be lost of work that has ended
  } catch (...) {
    return false;
  }
}

}  // namespace lockstep::detail
