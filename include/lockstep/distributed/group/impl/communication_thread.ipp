// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/backend/host/task_queue.hpp>
#include <lockstep/backend/threads/park.hpp>
#include <lockstep/backend/threads/short_slice.hpp>
#include <lockstep/backend/threads/spin_wait.hpp>
#include <lockstep/device/cores.hpp>
#include <lockstep/distributed/group/carrier.hpp>
#include <lockstep/distributed/group/communication_thread.hpp>
#include <lockstep/error.hpp>
#include <lockstep/profile/recording/recorder.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace lockstep::distributed::detail {

LOCKSTEP_INLINE CommunicationThread::~CommunicationThread() {
  if (!thread_.joinable()) return;
  if (lockstep::detail::forked()) {  // it exists in the parent only
    thread_.detach();
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    issued_.fetch_add(1, std::memory_order_release);
  }
  lockstep::detail::unpark_counted(issued_);
  thread_.join();
}

LOCKSTEP_INLINE void CommunicationThread::issue(Task task) {
  lockstep::detail::check_not_forked();
  {
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable()) start();
    queue_.push(std::move(task));
    issued_.fetch_add(1, std::memory_order_release);
  }
  lockstep::detail::unpark_counted(issued_);
}

LOCKSTEP_INLINE void CommunicationThread::drain() {
  if (lockstep::detail::forked()) return;  // what was issued is the parent's
  const std::uint32_t issued = issued_.load(std::memory_order_acquire);
  lockstep::detail::spin_then_park(completed_, [issued](std::uint32_t completed) {
    return static_cast<std::int32_t>(completed - issued) >= 0;
  });
  const std::lock_guard running(running_);
}

LOCKSTEP_INLINE void CommunicationThread::start_polling(Carrier& carrier) {
  if (std::find(polled_.begin(), polled_.end(), &carrier) == polled_.end()) {
    polled_.push_back(&carrier);
  }
}

LOCKSTEP_INLINE void CommunicationThread::start() {
  lockstep::detail::check_not_forked();
  try {
    thread_ = lockstep::detail::start_thread([this] { serve(); });
  } catch (const std::system_error& error) {
    throw Error(lockstep::detail::str("no thread for communication: ", error.what()));
  }
}

LOCKSTEP_INLINE void CommunicationThread::serve() {
  profile::name_thread(name_);
  if (waits_ == Waits::asleep) lockstep::detail::ask_for_short_slice();
  bool polls = false;
  for (std::uint32_t completed = 0;;) {
    const auto more = [completed](std::uint32_t issued) { return issued != completed; };
    if (!polls) lockstep::detail::spin_then_park(issued_, more);
    if (!more(issued_.load(std::memory_order_acquire))) {
      polls = poll_all();
      // Nothing wakes this thread when a message arrives, so it looks.
      if (polls) std::this_thread::sleep_for(std::chrono::microseconds(20));
      continue;
    }
    Task task;
    {
      const std::lock_guard lock(mutex_);
      if (queue_.empty() && stopping_) return;
      task = queue_.pop();
    }
    {
      const std::lock_guard running(running_);
      task();
      task = Task();  // what it holds is released before it counts as done
      polls = !polled_.empty();
    }
    // An exchange, since a store might become visible after the look for parked threads.
    completed_.exchange(++completed, std::memory_order_acq_rel);
    lockstep::detail::unpark_counted(completed_);
  }
}

LOCKSTEP_INLINE bool CommunicationThread::poll_all() {
  const std::lock_guard running(running_);
  std::erase_if(polled_, [](Carrier* carrier) { return !carrier->progress(); });
  return !polled_.empty();
}

}  // namespace lockstep::distributed::detail
