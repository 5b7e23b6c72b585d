// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/profile/recorded_event.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace lockstep::profile::detail {

// What one thread has recorded during one session, in the order in which its ranges ended.
//
// Threads: the thread appends, without a lock; one reader drains, at any time. An event belongs to
// the reader once it is counted in its chunk, and a chunk once the next one hangs on it: the
// release of either orders what the thread wrote before. The thread touches the last chunk alone.
// Both own the log, so that neither has to outlive the other; what a thread that goes on keeps of a
// drained log is one chunk.
class ThreadLog {
 public:
  ThreadLog(std::string label, std::size_t max_events)
      : label_(std::move(label)), room_(max_events), first_(new Chunk), last_(first_) {}
  ThreadLog(const ThreadLog&) = delete;
  ThreadLog& operator=(const ThreadLog&) = delete;
  ~ThreadLog();

  // The row of the thread.
  const std::string& label() const { return label_; }

  // By the thread: false if there is no room for it, which counts it as dropped.
  bool append(const RecordedEvent& event) noexcept;

  // By the thread: a copy of a name that lives as long as the log; null if there is no room.
  const char* keep(std::string_view name) noexcept;

  // By the reader: calls `take(event)` for all that has come since the last time, and frees the
  // chunks that are full.
  template <class Take>
  void drain(Take&& take) {
    while (true) {
      // In this order: a chunk that another one hangs on is full.
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
    std::array<RecordedEvent, 512> events;  // without values up to `count`
    std::atomic<std::size_t> count{0};
    std::atomic<Chunk*> next{nullptr};

    Chunk() noexcept {}
  };
  static_assert(std::is_trivially_destructible_v<RecordedEvent>);

  bool drop() noexcept;
  void drop_first() { delete std::exchange(first_, first_->next.load(std::memory_order_relaxed)); }

  const std::string label_;
  std::size_t room_;                          // for so many more events; the thread's
  Chunk* first_;                              // the reader's
  std::size_t taken_ = 0;                     // so many events of the first chunk; the reader's
  Chunk* last_;                               // the thread's
  std::set<std::string, std::less<>> names_;  // the thread's; nodes stay where they are
  std::atomic<std::uint64_t> dropped_{0};     // read while the thread may still count
};

}  // namespace lockstep::profile::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/profile/thread_log.ipp>
#endif
