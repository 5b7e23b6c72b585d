// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/host/background_threads.hpp>
#include <lockstep/backend/host/task_queue.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

namespace lockstep::detail {

// A stream of a host device (or of plain host memory), in one of two modes.
//
// immediate: the thread that issues work runs it at once, so the stream never has unfinished work
// of its own. It can have waits for other streams, which the next operation carries out first.
// Compute streams are immediate: a queue costs 0.1–0.4 µs a call and buys nothing there.
//
// queued: a background thread does the work, or a thread that waits for it while no other is doing
// it. Copy streams are queued. Tests switch compute streams to queued to make them as asynchronous
// as a GPU's, or put streams of their own in place (HostBackend::make_stream).
class HostStream : public StreamState, private Servable {
 public:
  enum class Mode { immediate, queued };

  HostStream(Device device, Mode mode) : StreamState(device), mode_(mode) {}

  Mode mode() const { return mode_.load(std::memory_order_relaxed); }
  // Only between uses: no other thread may issue meanwhile.
  void set_mode(Mode mode);

  // Runs `operation()` in stream order.
  template <class F>
  void submit(F&& operation) {
    submit(std::forward<F>(operation), true);
  }
  // The same for an operation that waits for no other thread, such as a copy.
  template <class F>
  void submit_copy(F&& operation) {
    submit(std::forward<F>(operation), false);
  }

  // The same for `function(count, bytes)`; a queue copies the `size` bytes.
  void submit(Task::Function function, std::size_t count, const void* bytes, std::size_t size);

  // As submit_copy; but an idle queued stream may run it in the caller, which is a legal schedule
  // and cheaper than a hop to another thread for work of a few microseconds.
  template <class F>
  void submit_small(F&& operation) {
    if (mode() == Mode::queued && idle()) {
      operation();
    } else {
      submit_copy(std::forward<F>(operation));
    }
  }

  // Waits for the events that the next operation would wait for, if that runs in the thread that
  // issues it.
  void prepare_operation() {
    if (has_waits_.load(std::memory_order_acquire)) finish_waits();
  }

  LOCKSTEP_INLINE bool idle() const override;

  LOCKSTEP_INLINE EventPtr record() override;

  LOCKSTEP_INLINE void wait(const EventPtr& event) override;

  LOCKSTEP_INLINE void synchronize() override;

 protected:
  LOCKSTEP_INLINE virtual void enqueue(Task task, bool may_wait);

 private:
  // The event of a queued stream: its operations up to `number` have ended.
  class Ticket final : public EventState {
   public:
    Ticket(HostStream& stream, std::uint64_t number) : stream_(stream), number_(number) {}
    LOCKSTEP_INLINE bool query() const override;
    void synchronize() const override { stream_.wait_for(number_); }
    LOCKSTEP_INLINE bool precedes_new_work_of(const StreamState& stream) const override;

   private:
    HostStream& stream_;
    const std::uint64_t number_;
  };

  // The event of an immediate stream: all that the stream still waits for. Its next operation comes
  // after all of it, and so does the work that waits for the stream.
  class AllOf final : public EventState {
   public:
    AllOf(const HostStream& stream, std::vector<EventPtr> events)
        : stream_(stream), events_(std::move(events)) {}
    LOCKSTEP_INLINE bool query() const override;
    LOCKSTEP_INLINE void synchronize() const override;
    LOCKSTEP_INLINE bool precedes_new_work_of(const StreamState& stream) const override;

   private:
    const HostStream& stream_;
    const std::vector<EventPtr> events_;
  };

  // Whether all events that the stream waits for have happened, even if no operation has waited
  // yet.
  bool waits_have_happened() const;

  // Waits for all of them. Several threads may call this at once, and each has to wait before it
  // goes on, so an event is removed only once it has happened.
  void finish_waits();

  template <class F>
  void submit(F&& operation, bool may_wait) {
    if (mode() == Mode::immediate) {
      prepare_operation();
      operation();
    } else {
      enqueue(Task(std::forward<F>(operation)), may_wait);
    }
  }

  LOCKSTEP_INLINE void serve() noexcept override;

  // Runs the queue up to operation `last`, in the calling thread. False if another thread runs it.
  bool serve_until(std::uint64_t last);

  // What the task holds is released before it counts as done.
  void run(Task task, bool may_wait);

  // Returns once operation `number` has ended. Meanwhile runs the queue if no other thread does, or
  // helps with shared work.
  void wait_for(std::uint64_t number);

  std::atomic<Mode> mode_;

  // queued: operation n is the n-th ever pushed. issued_ is written under mutex_ by issuers,
  // completed_ by the one thread that serves; its release publishes what the operation wrote.
  std::atomic<std::uint64_t> issued_{0};
  std::atomic<std::uint64_t> completed_{0};
  // queued: true while a thread runs the queue. Written under mutex_, read by others as a hint.
  std::atomic<bool> served_{false};
  // immediate: true while waits_ is not empty.
  std::atomic<bool> has_waits_{false};
  // True while error_ holds what a queued operation threw.
  std::atomic<bool> failed_{false};

  mutable std::mutex mutex_;  // guards all below
  TaskQueue queue_;
  std::vector<EventPtr> waits_;
  std::exception_ptr error_;
  bool offered_ = false;             // to the background threads, and none has come yet
  std::uint64_t last_blocking_ = 0;  // the last operation that may wait for a thread
};

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/backend/host/impl/host_stream.ipp>
#endif
