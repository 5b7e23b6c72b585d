// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/backend/host/background_threads.hpp>
#include <lockstep/backend/host/host_stream.hpp>
#include <lockstep/backend/host/task_queue.hpp>
#include <lockstep/backend/threads/spin_wait.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace lockstep::detail {

LOCKSTEP_INLINE void HostStream::set_mode(Mode mode) {
  synchronize();
  mode_.store(mode, std::memory_order_relaxed);
}

LOCKSTEP_INLINE void HostStream::submit(Task::Function function, std::size_t count,
                                        const void* bytes, std::size_t size) {
  if (mode() == Mode::immediate) {
    prepare_operation();
    function(count, bytes);
  } else {
    enqueue(Task::of_bytes(function, count, bytes, size), true);
  }
}

LOCKSTEP_INLINE bool HostStream::idle() const {
  return completed_.load(std::memory_order_acquire) == issued_.load(std::memory_order_acquire) &&
         (!has_waits_.load(std::memory_order_acquire) || waits_have_happened());
}

LOCKSTEP_INLINE EventPtr HostStream::record() {
  if (mode() == Mode::immediate) {
    const std::lock_guard lock(mutex_);
    return std::make_shared<AllOf>(*this, waits_);
  }
  return std::make_shared<Ticket>(*this, issued_.load(std::memory_order_acquire));
}

LOCKSTEP_INLINE void HostStream::wait(const EventPtr& event) {
  if (event->precedes_new_work_of(*this)) return;
  if (mode() == Mode::queued) {
    enqueue(Task([event] { event->synchronize(); }), true);
    return;
  }
  const std::lock_guard lock(mutex_);
  std::erase_if(waits_, [](auto& earlier) { return earlier->query(); });
  waits_.push_back(event);
  has_waits_.store(true, std::memory_order_release);
}

LOCKSTEP_INLINE void HostStream::synchronize() {
  prepare_operation();
  wait_for(issued_.load(std::memory_order_acquire));
  if (failed_.load(std::memory_order_acquire)) {
    std::exception_ptr error;
    {
      const std::lock_guard lock(mutex_);
      failed_.store(false, std::memory_order_relaxed);
      error = std::exchange(error_, nullptr);
    }
    if (error) std::rethrow_exception(error);
  }
}

LOCKSTEP_INLINE bool HostStream::Ticket::query() const {
  return stream_.completed_.load(std::memory_order_acquire) >= number_;
}

LOCKSTEP_INLINE bool HostStream::Ticket::precedes_new_work_of(const StreamState& stream) const {
  return &stream == &stream_ || query();
}

LOCKSTEP_INLINE bool HostStream::AllOf::query() const {
  return all_of(events_, [](auto& e) { return e->query(); });
}

LOCKSTEP_INLINE void HostStream::AllOf::synchronize() const {
  for (const auto& event : events_) event->synchronize();
}

LOCKSTEP_INLINE bool HostStream::AllOf::precedes_new_work_of(const StreamState& stream) const {
  return &stream == &stream_ ||
         all_of(events_, [&](auto& e) { return e->precedes_new_work_of(stream); });
}

LOCKSTEP_INLINE bool HostStream::waits_have_happened() const {
  const std::lock_guard lock(mutex_);
  return all_of(waits_, [](auto& event) { return event->query(); });
}

LOCKSTEP_INLINE void HostStream::finish_waits() {
  std::vector<EventPtr> waits;
  {
    const std::lock_guard lock(mutex_);
    waits = waits_;
  }
  for (const auto& event : waits) event->synchronize();
  const std::lock_guard lock(mutex_);
  std::erase_if(waits_, [](auto& event) { return event->query(); });
  has_waits_.store(!waits_.empty(), std::memory_order_release);
}

LOCKSTEP_INLINE void HostStream::enqueue(Task task, bool may_wait) {
  check_not_forked();
  BackgroundThreads& threads = BackgroundThreads::instance();
  threads.require();
  bool offer;
  {
    const std::lock_guard lock(mutex_);
    queue_.push(std::move(task));
    const std::uint64_t number = issued_.load(std::memory_order_relaxed) + 1;
    if (may_wait) last_blocking_ = number;
    issued_.store(number, std::memory_order_release);
    offer = !served_.load(std::memory_order_relaxed) && !std::exchange(offered_, true);
  }
  if (offer) threads.offer(*this);
}

LOCKSTEP_INLINE void HostStream::serve() noexcept {
  {
    const std::lock_guard lock(mutex_);
    offered_ = false;
  }
  serve_until(UINT64_MAX);
}

LOCKSTEP_INLINE bool HostStream::serve_until(std::uint64_t last) {
  if (served_.load(std::memory_order_relaxed)) return false;
  std::unique_lock lock(mutex_);
  if (served_.exchange(true, std::memory_order_relaxed)) return false;
  std::uint64_t next = completed_.load(std::memory_order_relaxed) + 1;
  for (; !queue_.empty() && next <= last; ++next) {
    Task task = queue_.pop();
    const bool may_wait = next <= last_blocking_;
    lock.unlock();
    run(std::move(task), may_wait);
    completed_.store(next, std::memory_order_release);
    completed_.notify_all();
    lock.lock();
  }
  served_.store(false, std::memory_order_relaxed);
  const bool offer = !queue_.empty() && !std::exchange(offered_, true);
  lock.unlock();
  if (offer) BackgroundThreads::instance().offer(*this);
  return true;
}

LOCKSTEP_INLINE void HostStream::run(Task task, bool may_wait) {
  try {
    if (may_wait) {
      const BackgroundThreads::BlockingScope blocking;
      task();
    } else {
      task();
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
    failed_.store(true, std::memory_order_release);
  }
}

LOCKSTEP_INLINE void HostStream::wait_for(std::uint64_t number) {
  const auto done = [this, number] { return completed_.load(std::memory_order_acquire) >= number; };
  BackgroundThreads& threads = BackgroundThreads::instance();
  while (!done()) {
    check_not_forked();  // a thread that serves the stream exists in the parent only
    if (serve_until(number)) continue;
    const std::uint32_t announcements = threads.announcements();
    threads.help_while([&] { return !done(); });
    const auto may_go_on = [&] {
      return done() || threads.announcements() != announcements ||
             !served_.load(std::memory_order_relaxed);
    };
    if (spin_until(may_go_on)) continue;
    const std::uint64_t completed = completed_.load(std::memory_order_acquire);
    if (completed < number) completed_.wait(completed, std::memory_order_acquire);
  }
}

}  // namespace lockstep::detail
