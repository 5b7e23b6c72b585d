// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/backend/host/task_queue.hpp>
#include <lockstep/backend/park.hpp>
#include <lockstep/backend/short_slice.hpp>
#include <lockstep/backend/spin_wait.hpp>
#include <lockstep/device/cores.hpp>
#include <lockstep/distributed/carrier.hpp>
#include <lockstep/error.hpp>
#include <lockstep/profile/recorder.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep::distributed::detail {

// Runs a rank's operations one after the other, in the order in which they were issued. One for all
// groups that a rank is in: then the order in which it goes through them is the program's own.
//
// The thread is started by the first operation that needs it. It ends in the destructor, which lets
// it finish what was issued. An operation that waits for a rank that is gone fails, so this takes
// no longer than the other ranks' turn does.
//
// Threads: any thread may call any member, apart from the destructor.
class CommunicationThread {
 public:
  using Task = lockstep::detail::Task;

  // How operations wait for other ranks. Where they sleep, the thread has a short slice: they are
  // issued while every core computes, and all ranks wait for the one that wakes up last. Where they
  // poll, a short slice would only take the cores from those who compute more often.
  enum class Waits { asleep, polling };

  explicit CommunicationThread(std::string name = "communication", Waits waits = Waits::asleep)
      : name_(std::move(name)), waits_(waits) {}
  CommunicationThread(const CommunicationThread&) = delete;
  CommunicationThread& operator=(const CommunicationThread&) = delete;
  ~CommunicationThread() {
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
    lockstep::detail::unpark_listed(issued_);
    thread_.join();
  }

  // Appends an operation, which must not throw.
  void issue(Task task) {
    lockstep::detail::check_not_forked();
    {
      const std::lock_guard lock(mutex_);
      if (!thread_.joinable()) start();
      queue_.push(std::move(task));
      issued_.fetch_add(1, std::memory_order_release);
    }
    lockstep::detail::unpark_listed(issued_);
  }

  // Runs `operation` in the calling thread and returns true, if nothing that was issued is
  // unfinished: it would be next, and going to another thread and back costs more than a small
  // collective.
  template <class F>
  bool run_here(F&& operation) {
    lockstep::detail::check_not_forked();
    const std::unique_lock running(running_, std::try_to_lock);
    if (!running ||
        completed_.load(std::memory_order_acquire) != issued_.load(std::memory_order_acquire)) {
      return false;
    }
    operation();
    return true;
  }

  // Blocks until what was issued has ended; messages need not have been taken.
  void drain() {
    if (lockstep::detail::forked()) return;  // what was issued is the parent's
    const std::uint32_t issued = issued_.load(std::memory_order_acquire);
    lockstep::detail::spin_then_park(completed_, [issued](std::uint32_t completed) {
      return static_cast<std::int32_t>(completed - issued) >= 0;
    });
    const std::lock_guard running(running_);
  }

  // Sees after the messages of a carrier until it has none, or not any more. Both are called by an
  // operation.
  void attend(Carrier& carrier) {
    if (std::find(attended_.begin(), attended_.end(), &carrier) == attended_.end()) {
      attended_.push_back(&carrier);
    }
  }
  void forget(Carrier& carrier) noexcept { std::erase(attended_, &carrier); }

  // Calls `function` while no operation runs.
  template <class F>
  void between_operations(F&& function) {
    const std::lock_guard running(running_);
    function();
  }
  // The same, and no longer sees after any carrier.
  template <class F>
  void stop_attending(F&& function) {
    const std::lock_guard running(running_);
    attended_.clear();
    function();
  }

 private:
  // With `mutex_` held.
  void start() {
    lockstep::detail::check_not_forked();
    try {
      thread_ = lockstep::detail::start_thread([this] { serve(); });
    } catch (const std::system_error& error) {
      throw Error(lockstep::detail::str("no thread for communication: ", error.what()));
    }
  }

  void serve() {
    profile::name_thread(name_);
    if (waits_ == Waits::asleep) lockstep::detail::ask_for_short_slice();
    bool attends = false;
    for (std::uint32_t completed = 0;;) {
      const auto more = [completed](std::uint32_t issued) { return issued != completed; };
      if (!attends) lockstep::detail::spin_then_park(issued_, more);
      if (!more(issued_.load(std::memory_order_acquire))) {
        attends = attend_all();
        // No word comes when a message arrives, so one has to look.
        if (attends) std::this_thread::sleep_for(std::chrono::microseconds(20));
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
        attends = !attended_.empty();
      }
      // An exchange: a store might fall behind the look for those who are parked.
      completed_.exchange(++completed, std::memory_order_acq_rel);
      lockstep::detail::unpark_listed(completed_);
    }
  }

  bool attend_all() {
    const std::lock_guard running(running_);
    std::erase_if(attended_, [](Carrier* carrier) { return !carrier->progress(); });
    return !attended_.empty();
  }

  // How many operations were ever issued to the thread, under `mutex_`, and how many it has ended:
  // the release of `completed_` publishes what they did.
  std::atomic<std::uint32_t> issued_{0};
  std::atomic<std::uint32_t> completed_{0};

  const std::string name_;  // the thread's, in timelines
  const Waits waits_;

  std::mutex running_;  // held while an operation runs, here or in a caller; guards `attended_`
  std::vector<Carrier*> attended_;

  std::mutex mutex_;  // guards all below
  lockstep::detail::TaskQueue queue_;
  bool stopping_ = false;
  std::thread thread_;  // joined by the destructor alone
};

}  // namespace lockstep::distributed::detail
