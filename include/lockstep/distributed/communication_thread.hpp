// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/backend/host/task_queue.hpp>
#include <lockstep/config.hpp>
#include <lockstep/distributed/carrier.hpp>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
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
  ~CommunicationThread();

  // Appends an operation, which must not throw.
  void issue(Task task);

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
  void drain();

  // Sees after the messages of a carrier until it has none, or not any more. All are called by an
  // operation. Nothing is allocated by `attend` after `make_room`.
  void make_room() { attended_.reserve(attended_.size() + 1); }
  void attend(Carrier& carrier);
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
  void start();

  void serve();

  bool attend_all();

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

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/communication_thread.ipp>
#endif
