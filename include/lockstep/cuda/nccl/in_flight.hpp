// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/nccl/error.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/distributed/group/call.hpp>
#include <lockstep/distributed/group/carrier.hpp>
#include <lockstep/distributed/group/deadline.hpp>
#include <lockstep/distributed/group/group_watch.hpp>
#include <lockstep/distributed/watchdog/watchdog_progress.hpp>
#include <lockstep/error.hpp>
#include <lockstep/non_copyable.hpp>

#include <algorithm>
#include <chrono>
#include <deque>
#include <exception>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <nccl.h>

namespace lockstep::cuda {

// The operations that one rank has issued to a communicator and that have not ended on its GPU, in
// order. Tells the rank's watchdog which collective the GPU is in; its time limit ends an operation
// that takes too long.
//
// Threads: one at a time.
class InFlight : lockstep::detail::NonCopyable {
 public:
  using Clock = std::chrono::steady_clock;

  struct Operation {
    std::string name;
    std::optional<distributed::detail::Call> call;  // if it is a collective
    distributed::detail::Done failed;               // may be empty
    bool gives_result;  // somebody who has waited for its issue may use its result
    Event end = {};     // set by `push`
    Clock::time_point since = Clock::now();
  };

  // `limit`: how long an operation may take, counted from when it is the first in the queue.
  InFlight(distributed::detail::GroupWatch watch, std::chrono::milliseconds limit)
      : watch_(std::move(watch)), limit_(limit) {}

  const distributed::detail::GroupWatch& watch() const { return watch_; }
  std::chrono::milliseconds limit() const { return limit_; }
  bool empty() const { return operations_.empty(); }
  const Operation& first() const { return operations_.front(); }
  // The first operation that gives a result, or null.
  const Operation* first_result() const {
    const auto found = std::find_if(operations_.begin(), operations_.end(),
                                    [](const Operation& each) { return each.gives_result; });
    return found == operations_.end() ? nullptr : &*found;
  }

  // Called before the rank issues the collective, in which NCCL may already wait for other ranks.
  void about_to_issue(const distributed::detail::Call& call) {
    next_ = call;
    if (!inside_) inside_.emplace(watch_.progress(), call);
  }
  // Called after the rank has issued the operation to `stream`: it ends when the stream has come
  // this far.
  void push(const Stream& stream, Operation operation) {
    operation.end = stream.record_event();
    if (operation.call) next_.reset();
    operations_.push_back(std::move(operation));
  }

  // Takes the operations that have ended off the queue. Throws a DeviceError if the GPU has failed.
  void take_ended() {
    while (!operations_.empty() && operations_.front().end.query()) {
      const bool collective = operations_.front().call.has_value();
      operations_.pop_front();
      if (!operations_.empty()) operations_.front().since = Clock::now();
      if (!collective) continue;
      inside_.reset();
      const auto next = std::find_if(operations_.begin(), operations_.end(),
                                     [](const Operation& each) { return each.call.has_value(); });
      const auto& call = next != operations_.end() ? next->call : next_;
      if (call) inside_.emplace(watch_.progress(), *call);
    }
  }

  // Throws a WatchdogError if something has happened to a rank, an NcclError if the first
  // operation's time is over.
  void check() const {
    watch_.check();
    if (!operations_.empty()) check_since(first().since);
  }
  // Throws an NcclError if the time is over for something that began at `since`.
  void check_since(Clock::time_point since) const {
    if (Clock::now() - since <= limit_) return;
    throw NcclError(
        lockstep::detail::str("has not ended within ", distributed::detail::Seconds{limit_},
                              " (LOCKSTEP_COLLECTIVE_TIMEOUT): another rank has left it out, hangs "
                              "or has ended, or what is before it on the GPU takes that long"),
        ncclRemoteError);
  }

  // `cause`, or the watchdog's error if it has one: that names the rank which failed. Waits up to
  // half a second for it: the end of a process closes NCCL's connections and the watchdog's at
  // about the same time, and NCCL may notice first.
  std::exception_ptr known_cause(const std::exception_ptr& cause) const noexcept {
    if (!watch_.progress() || !may_be_of_others(cause)) return cause;
    try {
      const distributed::detail::Deadline deadline(std::chrono::milliseconds(500));
      while (!watch_.faulted() && !deadline.passed()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      if (const std::exception_ptr found = watch_.exception()) return found;
    } catch (...) {  // no memory
    }
    return cause;
  }

  // Empties the queue: calls fail(operation) for each that was in flight.
  template <class Fail>
  void give_up(const Fail& fail) noexcept {
    inside_.reset();
    next_.reset();
    for (; !operations_.empty(); operations_.pop_front()) fail(operations_.front());
  }

 private:
  const distributed::detail::GroupWatch watch_;
  const std::chrono::milliseconds limit_;
  std::deque<Operation> operations_;
  std::optional<distributed::detail::Call> next_;    // until it has been issued
  std::optional<distributed::InCollective> inside_;  // the first collective, for the watchdog
};

}  // namespace lockstep::cuda
