// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/fork_guard.hpp>
#include <lockstep/backend/park.hpp>
#include <lockstep/backend/spin_wait.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/device/stream.hpp>

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

namespace lockstep::distributed {

namespace detail {

// What the one who runs an operation and those who wait for it share. `gpu` and `issued` are
// written before `ended`, whose release publishes them together with the results, and only read
// after it.
struct WorkState {
  enum : std::uint32_t { kRuns, kWell, kFailed };

  // From kWell it may still go to kFailed, with the error of a GPU.
  std::atomic<std::uint32_t> ended{kRuns};
  // Where the last work on a GPU is, if there is some: the point that users of the result wait for.
  std::optional<Device> gpu;
  Event issued;
};

class Completion;

}  // namespace detail

// A collective that was issued: a handle, to wait for its end and to ask for its error.
//
// It may be dropped: the operation takes place all the same. Until it has ended, its tensors may be
// neither written nor, where it writes them, read.
//
// **Torch counterpart.** torch.distributed.Work.
// **Devices and streams.** After `wait`, the results may be used by the waiting thread's current
// stream of their device. On a GPU the operation itself need not have ended then: the host is
// blocked until it is issued, and the stream waits for its end.
// **Threads and exceptions.** Any thread may ask and wait, several too, and as often as they like:
// each `wait` throws the operation's exception, if it has one. In a forked child, an Error for what
// the parent has not ended: the child would wait for ever.
class Work {
 public:
  // One that has ended without an error.
  Work() = default;

  // Blocks until the operation has ended, and throws what it threw. For GPUs the results may still
  // be on their way then; the current stream waits for them.
  void wait() const {
    if (!state_) return;
    std::uint32_t last = state_->ended.load(std::memory_order_acquire);
    if (last == detail::WorkState::kRuns) lockstep::detail::check_not_forked();
    lockstep::detail::spin_then_park(state_->ended, [&last](std::uint32_t ended) {
      last = ended;
      return ended != detail::WorkState::kRuns;
    });
    if (last == detail::WorkState::kFailed) std::rethrow_exception(*error_);
    if (state_->gpu) current_stream(*state_->gpu).wait_event(state_->issued);
  }

  // True once the operation has ended, on a GPU too, with an error or without one. Never blocks.
  bool is_completed() const {
    if (!state_) return true;
    const std::uint32_t ended = state_->ended.load(std::memory_order_acquire);
    return ended == detail::WorkState::kFailed ||
           (ended == detail::WorkState::kWell && (!state_->gpu || state_->issued.query()));
  }

  // What the operation threw; null if it has not ended, or ended well.
  std::exception_ptr exception() const {
    const bool failed =
        state_ && state_->ended.load(std::memory_order_acquire) == detail::WorkState::kFailed;
    return failed ? *error_ : std::exception_ptr();
  }

 private:
  friend class detail::Completion;

  std::shared_ptr<detail::WorkState> state_;
  std::shared_ptr<std::exception_ptr> error_;  // read after the end
};

namespace detail {

// The side of the one who runs an operation. Once it has finished, only handles hold the error: an
// exception ends on the side that has caught it, whichever lets go last.
class Completion {
 public:
  Completion() : state_(std::make_shared<WorkState>()) {}

  // The handle on it; made once.
  Work work() {
    Work work;
    work.state_ = state_;
    work.error_ = std::make_shared<std::exception_ptr>();
    error_ = work.error_;
    return work;
  }

  WorkState& state() const { return *state_; }

  void finish(std::exception_ptr error) const noexcept {
    const std::uint32_t ended = error ? WorkState::kFailed : WorkState::kWell;
    if (const auto seen = error_.lock()) *seen = std::move(error);
    // An exchange: a store might fall behind the look for those who are parked.
    state_->ended.exchange(ended, std::memory_order_acq_rel);
    lockstep::detail::unpark_listed(state_->ended);
  }

  // An operation that has finished well has failed on its GPU after that. Called once at most.
  void fail(std::exception_ptr error) const noexcept {
    if (const auto seen = error_.lock()) *seen = std::move(error);
    state_->ended.store(WorkState::kFailed, std::memory_order_release);
  }

 private:
  std::shared_ptr<WorkState> state_;
  std::weak_ptr<std::exception_ptr> error_;
};

}  // namespace detail

}  // namespace lockstep::distributed
