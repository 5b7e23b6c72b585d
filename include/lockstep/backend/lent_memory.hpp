// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/backend.hpp>
#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/backend/host/host_stream.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>

#include <cstddef>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace lockstep::detail {

// The queue of those who wait for work of `stream`. That work ends in the order of issue, so nobody
// waits behind someone who waits longer.
inline HostStream& queue_behind(StreamState& stream) {
  static std::mutex& mutex = *new std::mutex;
  static auto& queues = *new std::map<StreamState*, std::unique_ptr<HostStream>>;
  const std::lock_guard lock(mutex);
  auto& queue = queues[&stream];
  if (!queue) queue = std::make_unique<HostStream>(Device(), HostStream::Mode::queued);
  return *queue;
}

// A block that the program has lent: its owner gets it back by a call of `deleter`.
//
// If no work uses the block any more, the thread that returns it makes the call. Otherwise a
// background thread makes it once that work has ended; nobody waits. There is no call if nobody can
// know that the work has ended: a GPU has failed, memory has run out, the process was forked, or
// `main` has returned in a program that uses GPUs. A deleter that throws terminates the program.
//
// Made by new for one block; deletes itself after the call.
class LentMemory final : public BlockOwner {
 public:
  using Deleter = std::function<void(void*)>;

  explicit LentMemory(Deleter deleter) : deleter_(std::move(deleter)) {}

  void deallocate(void* data, std::size_t /*bytes*/, StreamState& owner,
                  UsedOn&& used_on) noexcept override {
    if (streams_are_gone()) return;
    data_ = data;
    const std::exception_ptr error = thrown_by([&] {
      note(owner);
      for (StreamState* stream : used_on.streams()) note(*stream);
    });
    // An error means that a GPU has failed or memory has run out.
    if (!error) give_back();
  }

  // For memory whose owner need not be told.
  static BlockOwner& unowned() {
    class Unowned final : public BlockOwner {
      void deallocate(void*, std::size_t, StreamState&, UsedOn&&) noexcept override {}
    };
    static BlockOwner& unowned = *new Unowned;
    return unowned;
  }

 private:
  struct Use {
    StreamState* stream;
    EventPtr end;
  };

  void note(StreamState& stream) {
    if (!stream.idle()) uses_.push_back({&stream, stream.record()});
  }

  // Makes the call after the remaining uses.
  void give_back() noexcept {
    while (!uses_.empty()) {
      try {
        queue_behind(*uses_.back().stream).submit([this] {
          if (wait_for_last()) give_back();
        });
        return;
      } catch (...) {  // no memory for a place in the queue, or no thread
        if (!wait_for_last()) return;
      }
    }
    deleter_(data_);
    delete this;
  }

  // Waits until the last use has ended, and removes it. False if nobody can know.
  bool wait_for_last() noexcept {
    const EventPtr end = std::move(uses_.back().end);
    uses_.pop_back();
    return is_known([&] {
      end->wait_for_end();
      return true;
    });
  }

  const Deleter deleter_;
  void* data_ = nullptr;
  std::vector<Use> uses_;
};

}  // namespace lockstep::detail
