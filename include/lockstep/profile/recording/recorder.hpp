// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/profile/device_timer.hpp>
#include <lockstep/profile/recording/name_thread.hpp>
#include <lockstep/profile/recording/recording.hpp>
#include <lockstep/profile/recording/thread_log.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace lockstep::profile {

namespace detail {

std::int64_t now();

// The logs of the session that is recorded, at most one at a time.
//
// Threads: any. `mutex_` guards all members; a thread takes it for its first event of a session.
// Lives until the process ends.
class Recorder {
 public:
  static Recorder& instance();

  // Begins a session of at most `max_events` events of each thread, and returns its number. An
  // Error if there is a session.
  std::uint64_t start(std::size_t max_events);

  // Ends it and hands out the logs. Threads that are about to append to theirs may still do so.
  std::vector<std::shared_ptr<ThreadLog>> stop();

  // The calling thread's log in a session; null if that has ended, the thread is about to end, or
  // there is no memory.
  ThreadLog* log(std::uint64_t number) noexcept;

  // Names of all ranges go to `listener`, which lives until the process ends, or to nobody if it is
  // null.
  void listen(const RangeListener* listener);

 private:
  static std::uint64_t session() { return recording.load(std::memory_order_relaxed) >> 1; }
  static std::uint64_t listening() {
    return range_listener.load(std::memory_order_relaxed) != nullptr ? 1 : 0;
  }

  std::mutex mutex_;
  std::uint64_t last_session_ = 0;
  std::size_t max_events_ = 0;
  std::vector<std::shared_ptr<ThreadLog>> logs_;
};

}  // namespace detail

}  // namespace lockstep::profile

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/profile/recording/impl/recorder.ipp>
#endif
