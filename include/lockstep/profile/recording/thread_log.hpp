// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/non_copyable.hpp>
#include <lockstep/profile/recording/recording.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <new>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace lockstep::profile::detail {

inline void discard(const RecordedEvent& event) noexcept {
  delete event.begin_mark;
  delete event.end_mark;
}

// What one thread has recorded during one session, in the order in which its ranges ended.
//
// Threads: the thread appends without a lock; one reader drains at any time. An event belongs to
// the reader once its chunk counts it, and a chunk once its `next` is set; both are stored with
// release order. The thread only touches the last chunk. Both own the log, so neither has to
// outlive the other; a thread that goes on keeps one chunk of a drained log.
class ThreadLog : lockstep::detail::NonCopyable {
 public:
  ThreadLog(std::string label, std::size_t max_events)
      : label_(std::move(label)), room_(max_events), first_(new Chunk), last_(first_) {}
  ~ThreadLog() {
    drain([](const RecordedEvent& event) { discard(event); });  // what came too late for the reader
    drop_first();
  }

  const std::string& label() const { return label_; }

  // Called by the thread. Returns false, and counts the event as dropped, if there is no room.
  bool append(const RecordedEvent& event) noexcept {
    if (room_ == 0) return drop();
    std::size_t count = last_->count.load(std::memory_order_relaxed);
    if (count == last_->events.size()) {
      Chunk* const next = new (std::nothrow) Chunk;
      if (next == nullptr) return drop();
      Chunk* const full = std::exchange(last_, next);
      full->next.store(next, std::memory_order_release);
      count = 0;
    }
    last_->events[count] = event;
    last_->count.store(count + 1, std::memory_order_release);
    --room_;
    return true;
  }

  // Called by the thread. Returns a copy of a name that lives as long as the log; null if there is
  // no room.
  const char* keep(std::string_view name) noexcept {
    const auto known = names_.find(name);
    if (known != names_.end()) return known->c_str();
    if (room_ == 0) return nullptr;
    try {
      return names_.emplace(name).first->c_str();
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }

  // Called by the reader. Calls `take(event)` for all events since the last call, and frees full
  // chunks.
  template <class Take>
  void drain(Take&& take) {
    while (true) {
      // `next` is read before `count`: a chunk that has a next one is full.
      Chunk* const next = first_->next.load(std::memory_order_acquire);
      const std::size_t count = first_->count.load(std::memory_order_acquire);
      while (taken_ < count) take(first_->events[taken_++]);
      if (next == nullptr) return;
      drop_first();
      taken_ = 0;
    }
  }

  std::uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

 private:
  struct Chunk {
    std::array<RecordedEvent, 512> events;  // uninitialised from `count` on
    std::atomic<std::size_t> count{0};
    std::atomic<Chunk*> next{nullptr};

    Chunk() noexcept {}
  };
  static_assert(std::is_trivially_destructible_v<RecordedEvent>);

  bool drop() noexcept {
    dropped_.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  void drop_first() { delete std::exchange(first_, first_->next.load(std::memory_order_relaxed)); }

  const std::string label_;
  std::size_t room_;       // events that may still come; the thread's
  Chunk* first_;           // the reader's
  std::size_t taken_ = 0;  // events of the first chunk taken so far; the reader's
  Chunk* last_;            // the thread's
  std::set<std::string, std::less<>> names_;  // the thread's; nodes stay where they are
  std::atomic<std::uint64_t> dropped_{0};     // read while the thread may still count
};

}  // namespace lockstep::profile::detail
