// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/backend/host/host_stream.hpp>
#include <lockstep/backend/host/task_queue.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>

#include "cudasim/fiber.hpp"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep::testing {

// A stream of a host device for finding waits that are missing: nothing orders it that does not
// order a GPU's.
//
// All work is done by a thread of its own, never by a caller, and the host learns as late as
// possible that it has ended: when somebody has waited for it, or has asked a thousand times.
// ThreadSanitizer does not see how the queue works (cudasim/fiber.hpp); it is told of the order
// that a stream gives:
//
//   who issues an operation → the operation
//   an operation → the next one of the stream
//   an operation → who waits for it, or is told that it has ended
//
// The background threads order more: two streams that one of them serves, and whoever issues to a
// stream after what has ended there.
//
// **Threads.** As a HostStream. Never destroyed.
class OrderedStream final : public lockstep::detail::HostStream {
 public:
  explicit OrderedStream(Device device) : HostStream(device, Mode::queued) {}

  // What HostBackend::make_stream is to be. What is done on plain `cpu` has ended when the call
  // returns.
  static std::unique_ptr<HostStream> make(Device device, Mode mode) {
    if (device.is_host_memory()) return std::make_unique<HostStream>(device, mode);
    return std::make_unique<OrderedStream>(device);
  }

  // What a user allocates while one of these is current may be used on all of them, one after the
  // other: its memory is not reused before they have done what has been issued to them. Called
  // while nothing is issued.
  void share_memory_with(std::vector<OrderedStream*> mates) { mates_ = std::move(mates); }

  bool idle() const override {
    const cudasim::Unseen unseen;  // its memory is not the program's
    return Point(*this).query();
  }
  bool known_idle() const override { return idle(); }

  lockstep::detail::EventPtr record() override { return std::make_shared<Point>(*this); }

  void wait(const lockstep::detail::EventPtr& event) override {
    const auto* const point = dynamic_cast<const Point*>(event.get());
    if (point != nullptr && &point->stream() == this) return;
    enqueue(lockstep::detail::Task([event] { event->synchronize(); }), true);
  }

  void synchronize() override {
    wait_for(issued());
    std::exception_ptr error;
    {
      const cudasim::Unseen unseen;
      const std::lock_guard lock(mutex_);
      error = std::exchange(error_, nullptr);
    }
    if (error) std::rethrow_exception(error);
  }

 private:
  // The end of the operations up to a number.
  class Point final : public lockstep::detail::EventState {
   public:
    explicit Point(const OrderedStream& stream) : parts_{{&stream, stream.issued()}} {
      for (const OrderedStream* mate : stream.mates_) {
        if (mate != &stream) parts_.emplace_back(mate, mate->issued());
      }
    }
    const OrderedStream& stream() const { return *parts_[0].first; }
    void synchronize() const override { stream().wait_for(parts_[0].second); }
    void wait_for_end() const override { synchronize(); }
    // These two are how the allocator learns whether memory is free.
    bool query() const override {
      return std::all_of(parts_.begin(), parts_.end(),
                         [](const auto& part) { return part.first->is_known(part.second, true); });
    }
    bool precedes_new_work_of(const lockstep::detail::StreamState& user) const override {
      return std::all_of(parts_.begin(), parts_.end(), [&](const auto& part) {
        return part.first == &user || part.first->is_known(part.second, false);
      });
    }

   private:
    std::vector<std::pair<const OrderedStream*, std::uint64_t>> parts_;
  };

  static constexpr std::size_t kEdges = 1024;  // older operations share those of newer ones
  static constexpr int kPatience = 1000;

  std::uint64_t issued() const {
    const cudasim::Unseen unseen;
    const std::lock_guard lock(mutex_);
    return issued_;
  }

  // Whether the host may know that operation `number` has ended.
  bool is_known(std::uint64_t number, bool asked) const {
    {
      const cudasim::Unseen unseen;
      const std::lock_guard lock(mutex_);
      if (number > known_) {
        if (!asked || ++asked_ < kPatience || number > completed_) return false;
        known_ = number;
      }
    }
    cudasim::host_acquire(ended_[number % kEdges]);
    return true;
  }

  void wait_for(std::uint64_t number) const {
    lockstep::detail::check_not_forked();
    {
      const cudasim::Unseen unseen;
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return completed_ >= number; });
      if (!serves_) known_ = std::max(known_, number);
    }
    cudasim::host_acquire(ended_[number % kEdges]);
  }

  void enqueue(lockstep::detail::Task task, bool) override {
    lockstep::detail::check_not_forked();
    const cudasim::Unseen unseen;
    const std::lock_guard lock(mutex_);
    queue_.push(std::move(task));
    cudasim::host_release(issued_at_[++issued_ % kEdges]);
    asked_ = 0;
    if (!std::exchange(started_, true)) std::thread([this] { work(); }).detach();
    changed_.notify_all();
  }

  [[noreturn]] void work() {
    serves_ = true;
    const cudasim::Unseen unseen;
    std::unique_lock lock(mutex_);
    for (std::uint64_t number = completed_ + 1;; ++number) {
      changed_.wait(lock, [this] { return !queue_.empty(); });
      lockstep::detail::Task task = queue_.pop();
      lock.unlock();
      std::exception_ptr error = carry_out(std::move(task), number);
      lock.lock();
      if (error && !error_) error_ = std::move(error);
      completed_ = number;
      changed_.notify_all();
    }
  }

  std::exception_ptr carry_out(lockstep::detail::Task task, std::uint64_t number) const {
    const cudasim::Seen seen;
    cudasim::host_acquire(issued_at_[number % kEdges]);
    std::exception_ptr error;
    try {
      task();
    } catch (...) {
      error = std::current_exception();
    }
    task = lockstep::detail::Task();
    cudasim::host_release(ended_[number % kEdges]);
    return error;
  }

  static inline thread_local bool serves_ = false;  // true in a stream's thread

  std::vector<OrderedStream*> mates_;
  std::array<cudasim::Edge, kEdges> issued_at_{};
  std::array<cudasim::Edge, kEdges> ended_{};

  mutable std::mutex mutex_;  // guards all below
  mutable std::condition_variable changed_;
  lockstep::detail::TaskQueue queue_;
  std::uint64_t issued_ = 1;  // something has been done before, by whomever
  std::uint64_t completed_ = 1;
  mutable std::uint64_t known_ = 0;
  mutable int asked_ = 0;
  std::exception_ptr error_;
  bool started_ = false;
};

}  // namespace lockstep::testing
