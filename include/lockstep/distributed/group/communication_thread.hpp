// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/backend/host/task_queue.hpp>
#include <lockstep/backend/threads/park.hpp>
#include <lockstep/backend/threads/short_slice.hpp>
#include <lockstep/backend/threads/spin_wait.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/cores.hpp>
#include <lockstep/distributed/group/carrier.hpp>
#include <lockstep/non_copyable.hpp>
#include <lockstep/profile/recording/recorder.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep::distributed::detail {

// Runs a rank's operations one after another, in the order in which they were issued. All groups of
// a rank share one, so their operations run in the program's order.
//
// The first operation that needs the thread starts it. The destructor waits until all issued
// operations have ended, which takes no longer than the other ranks need to get there: an operation
// that waits for a rank that is gone fails.
//
// Threads: any thread may call any member but the destructor.
class CommunicationThread : lockstep::detail::NonCopyable {
 public:
  using Task = lockstep::detail::Task;

  // How operations wait for other ranks. If they sleep, the thread asks for a short time slice so
  // that it wakes up soon: operations are issued while every core computes, and all ranks wait for
  // the last to wake up. If they poll, a short slice would only interrupt computing threads more
  // often.
  enum class Waits { asleep, polling };

  explicit CommunicationThread(std::string name = "communication", Waits waits = Waits::asleep)
      : name_(std::move(name)), waits_(waits) {}
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
    lockstep::detail::unpark_counted(issued_);
    thread_.join();
  }

  // Appends an operation, which must not throw. If `issue` throws, the caller keeps the operation.
  void issue(Task&& task) {
    lockstep::detail::check_not_forked();
    {
      const std::lock_guard lock(mutex_);
      if (!thread_.joinable()) {
        thread_ =
            lockstep::detail::start_thread("no thread for communication", [this] { serve(); });
      }
      queue_.push(std::move(task));
      issued_.fetch_add(1, std::memory_order_release);
    }
    lockstep::detail::unpark_counted(issued_);
  }

  // Runs `operation` in the calling thread and returns true, if all issued operations have ended;
  // else returns false. Switching threads would cost more than a small collective.
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

  // Blocks until all issued operations have ended; messages may still be under way.
  void drain() {
    if (lockstep::detail::forked()) return;  // what was issued is the parent's
    const std::uint32_t issued = issued_.load(std::memory_order_acquire);
    lockstep::detail::spin_then_park(completed_, [issued](std::uint32_t completed) {
      return static_cast<std::int32_t>(completed - issued) >= 0;
    });
    const std::lock_guard running(running_);
  }

  // The carriers of the rank's groups. The thread polls them until none has anything under way. All
  // of these are called while no other operation runs.
  void add(Carrier& carrier) { carriers_.push_back(&carrier); }
  void remove(Carrier& carrier) noexcept { std::erase(carriers_, &carrier); }
  void remove_all() noexcept { carriers_.clear(); }
  // Polls each once, as an operation does that waits for other ranks. True while any has more.
  bool poll() {
    bool more = false;
    for (Carrier* const carrier : carriers_) more = carrier->progress() || more;
    return more;
  }

  // Calls `function` while no operation runs.
  template <class F>
  void between_operations(F&& function) {
    const std::lock_guard running(running_);
    function();
  }

 private:
  void serve() {
    profile::name_thread(name_);
    if (waits_ == Waits::asleep) lockstep::detail::ask_for_short_slice();
    bool polls = false;
    for (std::uint32_t completed = 0;;) {
      const auto more = [completed](std::uint32_t issued) { return issued != completed; };
      if (!polls) lockstep::detail::spin_then_park(issued_, more);
      if (!more(issued_.load(std::memory_order_acquire))) {
        between_operations([&] { polls = poll(); });
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
        task = Task();  // releases what it holds before it counts as completed
        polls = poll();
      }
      // An exchange: a store might become visible only after the check for parked threads.
      completed_.exchange(++completed, std::memory_order_acq_rel);
      lockstep::detail::unpark_counted(completed_);
    }
  }

  // The numbers of operations issued, written under `mutex_`, and completed, whose release
  // publishes what they did.
  std::atomic<std::uint32_t> issued_{0};
  std::atomic<std::uint32_t> completed_{0};

  const std::string name_;  // the thread's, in timelines
  const Waits waits_;

  std::mutex running_;  // held while an operation runs, here or in a caller; guards `carriers_`
  std::vector<Carrier*> carriers_;

  std::mutex mutex_;  // guards all below
  lockstep::detail::TaskQueue queue_;
  bool stopping_ = false;
  std::thread thread_;  // joined by the destructor alone
};

}  // namespace lockstep::distributed::detail
