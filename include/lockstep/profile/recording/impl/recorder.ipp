// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/profile/device_timer.hpp>
#include <lockstep/profile/recording/name_thread.hpp>
#include <lockstep/profile/recording/recorder.hpp>
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

LOCKSTEP_INLINE std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The row of the calling thread: the name it was given here or as pthread_setname_np does, "main",
// or "thread" for one that has no other name than its process.
inline std::string thread_label() {
  if (!thread_name().empty()) return thread_name();
  if (::gettid() == ::getpid()) return "main";
  std::array<char, 16> name{};
  if (::pthread_getname_np(::pthread_self(), name.data(), name.size()) != 0) return "thread";
  const std::string text(name.data());
  const std::string process(::program_invocation_short_name);
  return text.empty() || text == process.substr(0, name.size() - 1) ? "thread" : text;
}

LOCKSTEP_INLINE Recorder& Recorder::instance() {
  static Recorder& recorder = *new Recorder;
  return recorder;
}

LOCKSTEP_INLINE std::uint64_t Recorder::start(std::size_t max_events) {
  const std::lock_guard lock(mutex_);
  check<Error>(session() == 0,
               "Profiler: another one is recording: stop or destroy it before the next is made");
  max_events_ = max_events;
  recording.store(++last_session_ << 1 | listening(), std::memory_order_relaxed);
  return last_session_;
}

LOCKSTEP_INLINE std::vector<std::shared_ptr<ThreadLog>> Recorder::stop() {
  const std::lock_guard lock(mutex_);
  recording.store(listening(), std::memory_order_relaxed);
  return std::exchange(logs_, {});
}

LOCKSTEP_INLINE ThreadLog* Recorder::log(std::uint64_t number) noexcept {
  // Without destructors, so that a range may still ask when the owner is gone.
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

LOCKSTEP_INLINE void Recorder::listen(const RangeListener* listener) {
  const std::lock_guard lock(mutex_);
  range_listener.store(listener, std::memory_order_release);
  recording.store(session() << 1 | listening(), std::memory_order_relaxed);
}

}  // namespace lockstep::profile::detail
