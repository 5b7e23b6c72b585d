// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/never_destroyed.hpp>
#include <lockstep/profile/recording/name_thread.hpp>
#include <lockstep/profile/recording/recording.hpp>
#include <lockstep/profile/recording/thread_log.hpp>

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::profile::detail {

inline std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The row of the calling thread: its name by name_thread or pthread_setname_np, "main", or "thread"
// if it only has its process's name.
inline std::string thread_label() {
  if (const std::string* const name = thread_name(); name && !name->empty()) return *name;
  if (::gettid() == ::getpid()) return "main";
  std::array<char, 16> name{};
  if (::pthread_getname_np(::pthread_self(), name.data(), name.size()) != 0) return "thread";
  const std::string text(name.data());
  const std::string process(::program_invocation_short_name);
  return text.empty() || text == process.substr(0, name.size() - 1) ? "thread" : text;
}

// The logs of the current session; there is at most one.
//
// Threads: any. `mutex_` guards all members; a thread takes it for its first event of a session.
// Lives until the process ends.
class Recorder {
 public:
  static Recorder& instance() { return lockstep::detail::never_destroyed<Recorder>(); }

  // Begins a session that keeps at most `max_events` events per thread, and returns its number. An
  // Error if there is a session already.
  std::uint64_t start(std::size_t max_events) {
    const std::lock_guard lock(mutex_);
    check<Error>(session() == 0,
                 "Profiler: another one is recording: stop or destroy it before the next is made");
    max_events_ = max_events;
    recording.store(++last_session_ << 1 | listening(), std::memory_order_relaxed);
    return last_session_;
  }

  // Ends the session and returns its logs. Threads may still be appending their last events.
  std::vector<std::shared_ptr<ThreadLog>> stop() {
    const std::lock_guard lock(mutex_);
    recording.store(listening(), std::memory_order_relaxed);
    return std::exchange(logs_, {});
  }

  // The calling thread's log in a session; null if the session has ended, the thread is ending, or
  // memory has run out.
  ThreadLog* log(std::uint64_t number) noexcept {
    // No destructors, so that a range may still look when the owner is gone.
    thread_local ThreadLog* mine = nullptr;
    thread_local std::uint64_t session_of_log = 0;
    thread_local bool ended = false;
    struct Owner {
      std::shared_ptr<ThreadLog> log;
      ~Owner() {
        mine = nullptr;
        ended = true;
      }
    };
    if (session_of_log == number || ended) return mine;
    try {
      thread_local Owner owner;
      std::string label = thread_label();
      const std::lock_guard lock(mutex_);
      if (session() != number) return nullptr;
      owner.log = std::make_shared<ThreadLog>(std::move(label), max_events_);
      mine = nullptr;
      logs_.push_back(owner.log);
      mine = owner.log.get();
      session_of_log = number;
    } catch (...) {
      mine = nullptr;
    }
    return mine;
  }

  // Sends the names of all ranges to `listener`, which lives until the process ends; null for
  // nobody.
  void listen(const RangeListener* listener) {
    const std::lock_guard lock(mutex_);
    range_listener.store(listener, std::memory_order_release);
    recording.store(session() << 1 | listening(), std::memory_order_relaxed);
  }

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

}  // namespace lockstep::profile::detail
