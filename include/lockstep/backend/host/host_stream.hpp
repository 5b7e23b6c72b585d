// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/backend/host/background_threads.hpp>
#include <lockstep/backend/host/task_queue.hpp>
#include <lockstep/backend/threads/spin_wait.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep::detail {

// A stream of a host device or of plain host memory, in one of two modes.
//
// immediate: the thread that issues work runs it at once, so the stream never has unfinished work
// of its own, only waits for other streams, which the next operation carries out first. Compute
// streams are immediate: a queue costs 0.1–0.4 µs a call and gains nothing there.
//
// queued: a background thread does the work, or a thread that waits for it if no other is at it.
// Copy streams are queued. Tests make compute streams queued, as asynchronous as a GPU's, or use
// streams of their own (HostBackend::make_stream).
class HostStream : public StreamState, private Servable {
 public:
  enum class Mode { immediate, queued };

  HostStream(Device device, Mode mode) : StreamState(device), mode_(mode) {}

  Mode mode() const { return mode_.load(std::memory_order_relaxed); }
  // Sets the mode. No other thread may issue meanwhile.
  void set_mode(Mode mode) {
    synchronize();
    mode_.store(mode, std::memory_order_relaxed);
  }

  // Runs `operation()` in stream order. `may_wait` says that it may wait for another thread, which
  // a copy does not.
  template <class F>
  void submit(F&& operation, bool may_wait = true) {
    if (mode() == Mode::immediate) {
      prepare_operation();
      operation();
    } else {
      enqueue(Task(std::forward<F>(operation)), may_wait);
    }
  }

  // The same for `function(count, bytes)`; a queue copies the `size` bytes.
  void submit(Task::Function function, std::size_t count, const void* bytes, std::size_t size) {
    if (mode() == Mode::immediate) {
      prepare_operation();
      function(count, bytes);
    } else {
      enqueue(Task::of_bytes(function, count, bytes, size), true);
    }
  }

  // Waits for the events that the next operation must wait for, if that runs in the issuing thread.
  void prepare_operation() {
    if (has_waits_.load(std::memory_order_acquire)) finish_waits();
  }

  bool idle() const override {
    return nothing_runs() && all_waits([](auto& event) { return event->query(); });
  }

  // Also false while a wait would throw a failure of this stream or of one that it waits for.
  bool known_idle() const override {
    return nothing_runs() &&
           reported_.load(std::memory_order_acquire) == failures_.load(std::memory_order_acquire) &&
           all_waits([this](auto& event) { return event->precedes_new_work_of(*this); });
  }

  EventPtr record() override {
    if (mode() == Mode::immediate) {
      const std::lock_guard lock(mutex_);
      return std::make_shared<AllOf>(*this, waits_);
    }
    return std::make_shared<Ticket>(*this, issued_.load(std::memory_order_acquire),
                                    reported_.load(std::memory_order_acquire));
  }

  void wait(const EventPtr& event) override {
    if (event->precedes_new_work_of(*this)) return;
    if (mode() == Mode::queued) {
      enqueue(Task([event] { event->synchronize(); }), true);
      return;
    }
    const std::lock_guard lock(mutex_);
    std::erase_if(waits_, [this](auto& earlier) {
      return is_known([&] { return earlier->precedes_new_work_of(*this); });
    });
    waits_.push_back(event);
    has_waits_.store(true, std::memory_order_release);
  }

  void synchronize() override {
    prepare_operation();
    const std::uint64_t last = issued_.load(std::memory_order_acquire);
    wait_for(last);
    report(last, reported_.load(std::memory_order_acquire));
  }

 protected:
  virtual void enqueue(Task task, bool may_wait) {
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

 private:
  // The event of a queued stream: its operations up to `number` have ended. The stream's first
  // `reported` failures were reported before it was recorded, and are not the event's.
  class Ticket final : public EventState {
   public:
    Ticket(HostStream& stream, std::uint64_t number, std::uint64_t reported)
        : stream_(stream), number_(number), reported_(reported) {}
    bool query() const override {
      return stream_.completed_.load(std::memory_order_acquire) >= number_;
    }
    void synchronize() const override {
      stream_.wait_for(number_);
      stream_.report(number_, reported_);
    }
    void wait_for_end() const override { stream_.wait_for(number_); }
    bool precedes_new_work_of(const StreamState& stream) const override {
      return &stream == &stream_ || (query() && !stream_.failure_before(number_, reported_));
    }

   private:
    HostStream& stream_;
    const std::uint64_t number_;
    const std::uint64_t reported_;
  };

  // The event of an immediate stream: everything that the stream still waits for. Its next
  // operation comes after all of that, and so does work that waits for the stream.
  class AllOf final : public EventState {
   public:
    AllOf(const HostStream& stream, std::vector<EventPtr> events)
        : stream_(stream), events_(std::move(events)) {}
    bool query() const override {
      return all_of(events_, [](auto& e) { return e->query(); });
    }
    void synchronize() const override {
      rethrow(first_thrown_by(events_, [](auto& event) { event->synchronize(); }));
    }
    void wait_for_end() const override {
      rethrow(first_thrown_by(events_, [](auto& event) { event->wait_for_end(); }));
    }
    bool precedes_new_work_of(const StreamState& stream) const override {
      return &stream == &stream_ ||
             all_of(events_, [&](auto& e) { return e->precedes_new_work_of(stream); });
    }

   private:
    const HostStream& stream_;
    const std::vector<EventPtr> events_;
  };

  bool nothing_runs() const {
    return completed_.load(std::memory_order_acquire) == issued_.load(std::memory_order_acquire);
  }

  // Whether `holds(event)` is true for all events that the stream waits for. An event that has
  // happened stays in the list until an operation waits.
  template <class Holds>
  bool all_waits(const Holds& holds) const {
    if (!has_waits_.load(std::memory_order_acquire)) return true;
    const std::lock_guard lock(mutex_);
    return all_of(waits_, holds);
  }

  static void rethrow(const std::exception_ptr& error) {
    if (error) std::rethrow_exception(error);
  }

  // Waits for all events, then throws the first failure among them. Several threads may call this
  // at once and each must wait, so an event is removed only once it has happened, or if nobody can
  // know, as with a failed GPU.
  void finish_waits() {
    std::vector<EventPtr> waits;
    {
      const std::lock_guard lock(mutex_);
      waits = waits_;
    }
    const std::exception_ptr error =
        first_thrown_by(waits, [](const EventPtr& event) { event->synchronize(); });
    const auto is_over = [&](const EventPtr& event) {
      if (find(waits, event) == waits.end()) return false;
      bool over = true;  // if nobody can know, too
      (void)thrown_by([&] { over = event->query(); });
      return over;
    };
    {
      const std::lock_guard lock(mutex_);
      std::erase_if(waits_, is_over);
      has_waits_.store(!waits_.empty(), std::memory_order_release);
    }
    rethrow(error);
  }

  // The exception of the first failed operation up to `number`, without the stream's first
  // `reported` failures; null if there is none.
  std::exception_ptr failure_before(std::uint64_t number, std::uint64_t reported) const {
    if (reported == failures_.load(std::memory_order_acquire)) return nullptr;
    const std::lock_guard lock(mutex_);
    const std::size_t first = first_failure(reported);
    if (first == kept_ || kept_failures_[first].operation > number) return nullptr;
    return kept_failures_[first].error;
  }

  // Throws that exception, if there is one, and counts the failures of all operations up to
  // `number` as reported; if this one was reported before, counts none.
  void report(std::uint64_t number, std::uint64_t reported) {
    const std::exception_ptr error = failure_before(number, reported);
    if (!error) return;
    {
      const std::lock_guard lock(mutex_);
      std::uint64_t all = reported_.load(std::memory_order_relaxed);
      const std::size_t unreported = first_failure(all);
      const bool again = first_failure(reported) < unreported;
      for (std::size_t i = unreported; i < kept_ && !again; ++i) {
        if (kept_failures_[i].operation <= number) ++all;
      }
      reported_.store(all, std::memory_order_release);
    }
    std::rethrow_exception(error);
  }

  // The index in kept_failures_ of the first failure after the first `reported`. Called with
  // mutex_.
  std::size_t first_failure(std::uint64_t reported) const {
    const std::uint64_t dropped = failures_.load(std::memory_order_relaxed) - kept_;
    return static_cast<std::size_t>(std::max(reported, dropped) - dropped);
  }

  void serve() noexcept override {
    {
      const std::lock_guard lock(mutex_);
      offered_ = false;
    }
    serve_until(UINT64_MAX);
  }

  // Runs the queue up to operation `last` in the calling thread. False if another thread is doing
  // so.
  //
  // Gives the stream up before the last operation counts as done, since whoever waits for a later
  // one is woken by that and must find the stream free.
  bool serve_until(std::uint64_t last) {
    if (served_.load(std::memory_order_relaxed)) return false;
    std::unique_lock lock(mutex_);
    if (served_.load(std::memory_order_relaxed)) return false;
    std::uint64_t next = completed_.load(std::memory_order_relaxed) + 1;
    bool goes_on = !queue_.empty() && next <= last;
    served_.store(goes_on, std::memory_order_relaxed);
    for (; goes_on; ++next) {
      Task task = queue_.pop();
      const bool may_wait = next <= last_blocking_;
      lock.unlock();
      run(next, std::move(task), may_wait);
      lock.lock();
      goes_on = !queue_.empty() && next < last;
      served_.store(goes_on, std::memory_order_relaxed);
      completed_.store(next, std::memory_order_release);
      completed_.notify_all();
    }
    const bool offer = !queue_.empty() && !std::exchange(offered_, true);
    lock.unlock();
    if (offer) BackgroundThreads::instance().offer(*this);
    return true;
  }

  // Releases what the task holds before it counts as done.
  void run(std::uint64_t number, Task task, bool may_wait) {
    try {
      std::optional<BackgroundThreads::BlockingScope> blocking;
      if (may_wait) blocking.emplace();
      task();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      keep_failure(number, std::current_exception());
    }
  }

  // Called with mutex_. If more failures than can be kept are unreported, the last one kept stands
  // for all later ones: whoever waits for its own operation waits for earlier ones, too.
  void keep_failure(std::uint64_t operation, std::exception_ptr error) noexcept {
    if (kept_ == kMostFailures) {
      if (first_failure(reported_.load(std::memory_order_relaxed)) == 0) {
        kept_failures_.back() = {operation, std::move(error)};
        return;
      }
      std::move(kept_failures_.begin() + 1, kept_failures_.end(), kept_failures_.begin());
      --kept_;
    }
    kept_failures_[kept_++] = {operation, std::move(error)};
    failures_.fetch_add(1, std::memory_order_release);
  }

  // Returns once operation `number` has ended. Meanwhile runs the queue if no other thread does, or
  // helps with shared work.
  void wait_for(std::uint64_t number) {
    const auto done = [this, number] {
      return completed_.load(std::memory_order_acquire) >= number;
    };
    BackgroundThreads& threads = BackgroundThreads::instance();
    while (!done()) {
      check_not_forked();  // only the parent has a thread that serves the stream
      if (serve_until(number)) continue;
      const std::uint32_t announcements = threads.announcements();
      threads.help_while([&] { return !done(); });
      const auto may_go_on = [&] {
        return done() || threads.announcements() != announcements ||
               !served_.load(std::memory_order_relaxed);
      };
      if (spin_until(may_go_on)) continue;
      const std::uint64_t completed = completed_.load(std::memory_order_acquire);
      if (completed < number && served_.load(std::memory_order_relaxed)) {
        completed_.wait(completed, std::memory_order_acquire);
      }
    }
  }

  struct Failure {
    std::uint64_t operation = 0;
    std::exception_ptr error;
  };
  static constexpr std::size_t kMostFailures = 8;

  std::atomic<Mode> mode_;

  // queued: operation n is the n-th ever pushed. Issuers write issued_ under mutex_; the one thread
  // that serves writes completed_, and its release publishes what the operation wrote.
  std::atomic<std::uint64_t> issued_{0};
  std::atomic<std::uint64_t> completed_{0};
  // queued: true while a thread runs the queue. Written under mutex_; others read it as a hint.
  std::atomic<bool> served_{false};
  // immediate: true while waits_ is not empty.
  std::atomic<bool> has_waits_{false};
  // queued: the number of failed operations, where one may stand for several (keep_failure), and
  // how many of these, from the first on, have been reported. Written under mutex_.
  std::atomic<std::uint64_t> failures_{0};
  std::atomic<std::uint64_t> reported_{0};

  mutable std::mutex mutex_;  // guards all below
  TaskQueue queue_;
  std::vector<EventPtr> waits_;
  std::array<Failure, kMostFailures> kept_failures_;  // the last `kept_` ones
  std::size_t kept_ = 0;
  bool offered_ = false;             // to the background threads, none of which has come yet
  std::uint64_t last_blocking_ = 0;  // the last operation that may wait for a thread
};

}  // namespace lockstep::detail
