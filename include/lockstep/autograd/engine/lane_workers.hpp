// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/threads/crew.hpp>
#include <lockstep/backend/threads/pace.hpp>
#include <lockstep/backend/threads/park.hpp>
#include <lockstep/backend/threads/spin_wait.hpp>
#include <lockstep/error.hpp>

#include <atomic>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory_resource>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep::detail {

// Runs the items of several lanes on the calling thread and on helpers, one item of each lane at a
// time.
//
// The calling thread starts alone and takes items of any lane that no thread works on. A thread
// that is about to run an item while another lane has some, too, first calls a helper, so no lane
// with items waits for another. If the work was short last time, the first helper is not woken: it
// comes when it next looks for work, usually too late to be needed.
//
// `Item` has a member `Item* next_ready` for the workers. `Job` has `run(Item&)`, which may throw;
// `finish(Item&)`, which is called with the lock held after an item has run, and which calls `put`
// for items that have become ready; and `Scope`, which each thread makes from the Job before its
// first item, and whose `enter(lane)` it calls before each item.
//
// Threads: the caller and its helpers. `mutex_` guards everything that changes while they work,
// except for what a running item holds, and `notifications_`.
template <class Job, class Item>
class LaneWorkers {
 public:
  // `memory` must outlive this object; only `set_lanes` takes memory from it.
  explicit LaneWorkers(Job& job,
                       std::pmr::memory_resource* memory = std::pmr::get_default_resource())
      : job_(job), lanes_(memory) {}

  // Called once, before the first item is put.
  void set_lanes(std::size_t count) { lanes_.resize(count); }

  // Adds an item that is ready. Called by `finish`, or before `run`.
  void put(std::size_t lane, Item& item) { lanes_[lane].push(item); }

  // Returns once `count` items have run, including those not yet ready, or once one has thrown and
  // all running ones have ended.
  void run(std::size_t count, Pace& pace) {
    if (count == 0) return;
    open_ = count;
    if (lanes_.size() == 1) {
      run_alone();
    } else {
      run_together(pace);
    }
  }

  // Whether the running item is the last. False if other threads may be at work. Called by the
  // item.
  bool is_last() const { return lanes_.size() == 1 && open_ <= 1; }

  // Throws what an item threw, if any did: that of the first such lane in the order of `before`,
  // which compares two lanes.
  template <class Before = std::less<>>
  void rethrow_error(const Before& before = {}) const {
    const std::size_t none = lanes_.size();
    std::size_t first = none;
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      if (lanes_[i].error && (first == none || before(i, first))) first = i;
    }
    if (first != none) std::rethrow_exception(lanes_[first].error);
  }

 private:
  struct Lane {
    void push(Item& item) { item.next_ready = std::exchange(ready, &item); }
    Item* pop() { return std::exchange(ready, ready->next_ready); }

    Item* ready = nullptr;  // the last one put; next_ready links to the one before
    bool taken = false;     // a thread runs one of its items
    std::exception_ptr error;
  };
  struct Choice {
    Item* item = nullptr;
    std::size_t lane = 0;
    bool more = false;  // another lane has items that no thread runs
  };
  // Whom to wake so that the items of other lanes run, too.
  struct WakeUp {
    enum { nobody, waiting_thread, coming_helper, new_helper } whom = nobody;
    std::size_t helper = 0;
    Crew::Call how = Crew::Call::urgent;
  };

  void run_alone() {
    Lane& lane = lanes_[0];
    lane.error = thrown_by([&] {
      typename Job::Scope scope(job_);
      while (lane.ready) {
        Item& item = *lane.pop();
        scope.enter(0);
        job_.run(item);
        --open_;
        job_.finish(item);
      }
    });
  }

  void run_together(Pace& pace) {
    usually_short_ = pace.is_short();
    begin_ = Pace::Clock::now();
    const auto help = [this](std::size_t /*helper*/) {
      {
        const std::lock_guard lock(mutex_);
        --coming_;
      }
      work();
    };
    // The crew refers to `help`, and ends before it. (In a forked child `dismiss` throws and the
    // crew stays, but has no helpers.)
    crew_.emplace(lanes_.size() - 1, help);
    work();
    crew_->dismiss();
    pace.measured(usually_short_ ? Pace::Clock::now() - begin_ : busy_);
    crew_.reset();
  }

  void work() noexcept {
    std::unique_lock lock(mutex_);
    std::optional<typename Job::Scope> scope;
    std::size_t lane = 0;
    while (!failed_ && open_ > 0) {
      const Choice choice = choose(lane);
      if (!choice.item) {
        wait(lock);
        continue;
      }
      lane = choice.lane;
      lanes_[lane].taken = true;
      const WakeUp wake_up = choice.more ? choose_wake_up() : WakeUp{};
      lock.unlock();
      wake(wake_up);
      const auto begin = usually_short_ ? Pace::Clock::time_point() : Pace::Clock::now();
      std::exception_ptr error = thrown_by([&] {
        if (!scope) scope.emplace(job_);
        scope->enter(lane);
        job_.run(*choice.item);
      });
      const auto end = usually_short_ ? Pace::Clock::time_point() : Pace::Clock::now();
      lock.lock();
      busy_ += end - begin;
      lanes_[lane].taken = false;
      --open_;
      if (!error) error = thrown_by([&] { job_.finish(*choice.item); });
      if (error) {
        lanes_[lane].error = std::move(error);
        failed_ = true;
      }
    }
    const bool others_wait = waiting_ > 0;
    lock.unlock();
    if (others_wait) notify(INT_MAX);
  }

  // Takes an item of lane `last`, or else of another one.
  Choice choose(std::size_t last) {
    Choice choice;
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      const std::size_t number = last + i < lanes_.size() ? last + i : last + i - lanes_.size();
      Lane& lane = lanes_[number];
      if (lane.taken || !lane.ready) continue;
      if (choice.item) {
        choice.more = true;
        break;
      }
      choice.item = lane.pop();
      choice.lane = number;
    }
    return choice;
  }

  // Blocks, without the lock, until there may be something to choose or everything has ended.
  void wait(std::unique_lock<std::mutex>& lock) {
    const std::uint32_t seen = notifications_.load(std::memory_order_relaxed);
    ++waiting_;
    lock.unlock();
    spin_then_park(notifications_, [seen](std::uint32_t count) { return count != seen; });
    lock.lock();
    --waiting_;
  }

  // Decides who takes the other lanes' items: a waiting thread, a helper on its way, or a new one.
  WakeUp choose_wake_up() {
    if (waiting_ > 0) return {.whom = WakeUp::waiting_thread};
    // While the work is short, helper 1 may come by itself.
    const auto is_long = [this] {
      return !usually_short_ || !Pace::is_short(Pace::Clock::now() - begin_);
    };
    if (coming_ > 0) {
      if (woken_ || !is_long()) return {};
      woken_ = true;
      return {.whom = WakeUp::coming_helper, .helper = 1};
    }
    if (called_ == crew_->helpers()) return {};
    woken_ = called_ > 0 || is_long();
    ++coming_;
    return {.whom = WakeUp::new_helper,
            .helper = ++called_,
            .how = woken_ ? Crew::Call::urgent : Crew::Call::low_priority};
  }

  void wake(const WakeUp& wake_up) noexcept {
    if (wake_up.whom == WakeUp::waiting_thread) notify(1);
    if (wake_up.whom == WakeUp::coming_helper) crew_->make_urgent(wake_up.helper);
    if (wake_up.whom == WakeUp::new_helper) crew_->call(wake_up.helper, wake_up.how);
  }

  void notify(int threads) noexcept {
    notifications_.fetch_add(1, std::memory_order_release);
    unpark_counted(notifications_, threads);
  }

  Job& job_;
  bool usually_short_ = false;  // constant while threads work, as is begin_
  Pace::Clock::time_point begin_;
  std::optional<Crew> crew_;

  std::mutex mutex_;
  std::pmr::vector<Lane> lanes_;  // their number is constant while threads work
  std::size_t open_ = 0;          // items yet to run
  bool failed_ = false;
  std::size_t called_ = 0;        // helpers called so far
  std::size_t coming_ = 0;        // of these, those that have not come yet
  std::size_t waiting_ = 0;       // threads in `wait`
  bool woken_ = false;            // the last one called was woken
  Pace::Clock::duration busy_{};  // the time of all items, unless usually_short_

  // Counts how often waiting threads were told to look again. Whoever increments it wakes them.
  std::atomic<std::uint32_t> notifications_{0};
};

}  // namespace lockstep::detail
