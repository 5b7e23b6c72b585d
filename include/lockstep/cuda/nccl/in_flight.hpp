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

#include <algorithm>
#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <utility>

#include <nccl.h>

namespace lockstep::cuda {

// What one rank has issued to a communicator and what has not ended on its GPU, in order. Tells the
// rank's watchdog in which collective the GPU is, and when one has been under way for too long.
//
// Threads: one at a time.
class InFlight {
 public:
  using Clock = std::chrono::steady_clock;

  struct Operation {
    std::string name;
    std::optional<distributed::detail::Call> call;  // of a collective
    distributed::detail::Done failed;               // may be empty
    bool gives_result;                              // to those who have waited for its issue
    Event end = {};                                 // by `push`
    Clock::time_point since = Clock::now();
  };

  // `limit`: for how long an operation may take, from when it is the first in the queue.
  InFlight(distributed::detail::GroupWatch watch, std::chrono::milliseconds limit)
      : watch_(std::move(watch)), limit_(limit) {}
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;

  const distributed::detail::GroupWatch& watch() const { return watch_; }
  std::chrono::milliseconds limit() const { return limit_; }
  bool empty() const { return operations_.empty(); }
  const Operation& first() const { return operations_.front(); }
  // The first of which somebody may have the result before it has ended, or null.
  const Operation* first_result() const {
    const auto found = std::find_if(operations_.begin(), operations_.end(),
                                    [](const Operation& each) { return each.gives_result; });
    return found == operations_.end() ? nullptr : &*found;
  }

  // The rank is about to issue the collective: NCCL may wait for the others even then.
  void come_to(const distributed::detail::Call& call) {
    coming_ = call;
    if (!inside_) enter(call);
  }
  // What it has issued last to the stream: its `end` is where the stream is now.
  void push(const Stream& stream, Operation operation) {
    operation.end = stream.record_event();
    if (operation.call) coming_.reset();
    operations_.push_back(std::move(operation));
  }

  // Takes what has ended off the queue. A DeviceError if the GPU has failed.
  void take_ended() {
    while (!operations_.empty() && operations_.front().end.query()) {
      const bool collective = operations_.front().call.has_value();
      operations_.pop_front();
      if (!operations_.empty()) operations_.front().since = Clock::now();
      if (!collective) continue;
      leave();
      const auto next = std::find_if(operations_.begin(), operations_.end(),
                                     [](const Operation& each) { return each.call.has_value(); });
      if (next != operations_.end()) {
        enter(*next->call);
      } else if (coming_) {
        enter(*coming_);
      }
    }
  }

  // A WatchdogError if something has happened to a rank, an NcclError if the time limit is over.
  void check() const {
    watch_.check();
    if (!operations_.empty()) check_since(first().since);
  }
  // The time limit alone, of something that has begun `since`.
  void check_since(Clock::time_point since) const {
    if (Clock::now() - since <= limit_) return;
    throw NcclError(
        lockstep::detail::str("has not ended within ", distributed::detail::Seconds{limit_},
                              " (LOCKSTEP_COLLECTIVE_TIMEOUT): another rank has left it out, hangs "
                              "or has ended, or what is before it on the GPU takes that long"),
        ncclRemoteError);
  }

  // Nothing is in flight any more: calls fail(operation) for what was.
  template <class Fail>
  void give_up(const Fail& fail) noexcept {
    if (inside_) leave();
    coming_.reset();
    for (; !operations_.empty(); operations_.pop_front()) fail(operations_.front());
  }

 private:
  void enter(const distributed::detail::Call& call) {
    inside_ = true;
    if (distributed::Progress* const progress = watch_.progress()) progress->enter(call);
  }
  void leave() {
    inside_ = false;
    if (distributed::Progress* const progress = watch_.progress()) progress->leave();
  }

  const distributed::detail::GroupWatch watch_;
  const std::chrono::milliseconds limit_;
  std::deque<Operation> operations_;
  std::optional<distributed::detail::Call> coming_;  // until it has been issued
  bool inside_ = false;  // the watchdog takes this rank to be in the first collective
};

}  // namespace lockstep::cuda
