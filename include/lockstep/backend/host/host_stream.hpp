// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/backend/host/task_queue.hpp>
#include <lockstep/backend/spin_wait.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep::detail {

// A stream of a host device (or of plain host memory), in one of two modes.
//
// immediate: work runs at once in the thread that issues it, so the stream never has unfinished
//   work of its own; what it can have are waits for other streams, which the next operation pays.
//   Compute streams are immediate: a queue costs 0.1–0.4 µs a call and buys nothing there.
// queued: work goes to a thread of the stream's own, started at first use. Copy streams are queued.
//   Tests switch compute streams to queued to make them as asynchronous as a GPU's.
class HostStream final : public StreamState {
 public:
  enum class Mode { immediate, queued };

  HostStream(Device device, Mode mode) : StreamState(device), mode_(mode) {}

  Mode mode() const { return mode_.load(std::memory_order_relaxed); }
  // Only between uses: no other thread may issue meanwhile.
  void set_mode(Mode mode) {
    synchronize();
    mode_.store(mode, std::memory_order_relaxed);
  }

  // Runs `operation()` in stream order.
  template <class F>
  void submit(F&& operation) {
    if (mode() == Mode::immediate) {
      settle();
      operation();
    } else {
      enqueue(Task(std::forward<F>(operation)));
    }
  }

  // The same for `function(count, bytes)`; a queue copies the `size` bytes.
  void submit(Task::Function function, std::size_t count, const void* bytes, std::size_t size) {
    if (mode() == Mode::immediate) {
      settle();
      function(count, bytes);
    } else {
      enqueue(Task::of_bytes(function, count, bytes, size));
    }
  }

  // As submit; but an idle queued stream may run it in the caller, which is a legal schedule and
  // cheaper than a hop to another thread for work of a few microseconds.
  template <class F>
  void submit_small(F&& operation) {
    if (mode() == Mode::queued && idle()) {
      operation();
    } else {
      submit(std::forward<F>(operation));
    }
  }

  bool idle() const override {
    return completed_.load(std::memory_order_acquire) == issued_.load(std::memory_order_acquire) &&
           (!has_waits_.load(std::memory_order_acquire) || waits_have_happened());
  }

  EventPtr record() override {
    if (mode() == Mode::immediate) {
      const std::lock_guard lock(mutex_);
      return std::make_shared<AllOf>(*this, waits_);
    }
    return std::make_shared<Ticket>(*this, issued_.load(std::memory_order_acquire));
  }

  void wait(const EventPtr& event) override {
    if (event->precedes_new_work_of(*this)) return;
    if (mode() == Mode::queued) {
      enqueue(Task([event] { event->synchronize(); }));
      return;
    }
    const std::lock_guard lock(mutex_);
    std::erase_if(waits_, [](auto& earlier) { return earlier->query(); });
    waits_.push_back(event);
    has_waits_.store(true, std::memory_order_release);
  }

  void synchronize() override {
    settle();
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

 private:
  // The work issued to a queued stream up to a number.
  class Ticket final : public EventState {
   public:
    Ticket(const HostStream& stream, std::uint64_t number) : stream_(stream), number_(number) {}
    bool query() const override {
      return stream_.completed_.load(std::memory_order_acquire) >= number_;
    }
    void synchronize() const override { stream_.wait_for(number_); }
    bool precedes_new_work_of(const StreamState& stream) const override {
      return &stream == &stream_ || query();
    }

   private:
    const HostStream& stream_;
    const std::uint64_t number_;
  };

  // What an immediate stream still waits for: its next operation comes after all of it, and so
  // does whatever waits for that stream.
  class AllOf final : public EventState {
   public:
    AllOf(const HostStream& stream, std::vector<EventPtr> events)
        : stream_(stream), events_(std::move(events)) {}
    bool query() const override {
      return std::all_of(events_.begin(), events_.end(), [](auto& e) { return e->query(); });
    }
    void synchronize() const override {
      for (const auto& event : events_) event->synchronize();
    }
    bool precedes_new_work_of(const StreamState& stream) const override {
      return &stream == &stream_ || std::all_of(events_.begin(), events_.end(), [&](auto& e) {
        return e->precedes_new_work_of(stream);
      });
    }

   private:
    const HostStream& stream_;
    const std::vector<EventPtr> events_;
  };

  // A wait that has happened but that no operation has paid yet orders nothing any more.
  bool waits_have_happened() const {
    const std::lock_guard lock(mutex_);
    return std::all_of(waits_.begin(), waits_.end(), [](auto& event) { return event->query(); });
  }

  void settle() {
    if (has_waits_.load(std::memory_order_acquire)) pay_waits();
  }

  // Several threads may come here at once; each must have waited before it goes on, so the waits
  // are removed only once they have happened.
  void pay_waits() {
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

  void enqueue(Task task) {
    check_not_forked();
    {
      const std::lock_guard lock(mutex_);
      if (!running_) start_thread();
      queue_.push(std::move(task));
      issued_.store(issued_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    }
    issued_.notify_one();
  }

  // With `mutex_` held.
  void start_thread() {
    try {
      std::thread([this] { serve(); }).detach();
    } catch (const std::system_error& error) {
      throw Error(str("no thread for a stream of ", device(), ": ", error.what()));
    }
    running_ = true;
  }

  void serve() {
    for (std::uint64_t next = 1;; ++next) {
      spin_then_wait(issued_, [next](std::uint64_t issued) { return issued >= next; });
      Task task;
      {
        const std::lock_guard lock(mutex_);
        task = queue_.pop();
      }
      try {
        task();
      } catch (...) {
        const std::lock_guard lock(mutex_);
        if (!error_) error_ = std::current_exception();
        failed_.store(true, std::memory_order_release);
      }
      task = Task();  // what it holds is released before it counts as done
      completed_.store(next, std::memory_order_release);
      completed_.notify_all();
    }
  }

  void wait_for(std::uint64_t number) const {
    spin_then_wait(completed_, [number](std::uint64_t completed) { return completed >= number; });
  }

  std::atomic<Mode> mode_;

  // queued: operation n is the n-th ever pushed. issued_ is written under mutex_ by issuers,
  // completed_ by the stream's thread alone; its release publishes what the operation wrote.
  std::atomic<std::uint64_t> issued_{0};
  std::atomic<std::uint64_t> completed_{0};
  // immediate: true while waits_ is not empty.
  std::atomic<bool> has_waits_{false};
  // True while error_ holds what a queued operation threw.
  std::atomic<bool> failed_{false};

  mutable std::mutex mutex_;  // guards all below
  TaskQueue queue_;
  std::vector<EventPtr> waits_;
  std::exception_ptr error_;
  bool running_ = false;
};

}  // namespace lockstep::detail
