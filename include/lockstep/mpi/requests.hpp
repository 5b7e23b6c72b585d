// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/threads/spin_wait.hpp>
#include <lockstep/distributed/group/deadline.hpp>
#include <lockstep/distributed/watchdog/watchdog.hpp>
#include <lockstep/error.hpp>
#include <lockstep/mpi/api.hpp>
#include <lockstep/mpi/failure_notice.hpp>
#include <lockstep/scoped_value.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep::mpi::detail {

// The pause between two polls for another rank: none at first, then the thread yields its core, and
// after some time it sleeps.
class PollPause {
 public:
  void operator()() {
    constexpr int kSpins = 200;
    constexpr std::chrono::milliseconds kYields{10};
    if (++looks_ < kSpins) return lockstep::detail::cpu_relax();
    const auto now = Clock::now();
    if (looks_ == kSpins) since_ = now;
    if (now - since_ < kYields) return std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }

 private:
  using Clock = std::chrono::steady_clock;

  int looks_ = 0;  // at most some millions
  Clock::time_point since_{};
};

// How long an error of MPI's waits for the watchdog's explanation. Set while no operation runs.
inline std::chrono::milliseconds fault_delay{2000};

// The watchdog's error, if it finds a fault soon; else null. If a rank has died, MPI may see an
// error before the watchdog does, which knows more.
inline std::exception_ptr await_fault(const distributed::Watchdog* watchdog) {
  if (!watchdog) return nullptr;
  const distributed::detail::Deadline deadline(fault_delay);
  while (!watchdog->faulted() && !deadline.passed()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return watchdog->exception();
}

// Runs to its end what `start(request)` starts, outside of all groups; all processes of a
// communicator take part. Lockstep allocates nothing for it, so a rank without memory can still
// tell the others. Once the watchdog has found a fault it fails, as `Requests::wait` does, and MPI
// may use its memory for ever. `watchdog` may be null.
template <class Start>
void complete(const char* call, const distributed::Watchdog* watchdog, const Start& start) {
  const auto check = [&](int code) {
    if (code == MPI_SUCCESS) return;
    if (const std::exception_ptr fault = await_fault(watchdog)) std::rethrow_exception(fault);
    throw mpi_error(code, call);
  };
  MPI_Request request = MPI_REQUEST_NULL;
  check(start(&request));
  PollPause pause;
  std::optional<distributed::detail::Deadline> deadline;
  while (true) {
    const bool late = deadline && deadline->passed();
    int ended = 0;
    check(MPI_Test(&request, &ended, MPI_STATUS_IGNORE));
    if (ended) return;
    if (late) std::rethrow_exception(watchdog->exception());
    if (!deadline && watchdog && watchdog->faulted()) deadline.emplace(FailureNotice::last_chance);
    pause();
  }
}

// The requests that one rank has under way in a communicator, and waits for: messages to and from
// other ranks, and MPI's collectives. It waits by polling MPI, so that it can stop when the
// watchdog finds a fault.
//
// After a wait has failed, or the rank has left, MPI may still use the memory of requests under
// way. No further one is started; the first error is thrown again. A collective is one `together`.
//
// Threads: the communication thread, or one that runs an operation in its place; `break_off` any.
class Requests {
 public:
  // The tag of its own messages. Others in the communicator have greater ones, except notices.
  static constexpr int kTag = FailureNotice::kTag + 1;

  // `watchdog` may be null. Ranks tell each other of failures by `notice`, which has the
  // communicator; nothing else uses that.
  Requests(std::shared_ptr<const distributed::Watchdog> watchdog, FailureNotice* notice)
      : watchdog_(std::move(watchdog)), notice_(notice) {}

  // Each wait calls `poll` repeatedly.
  void call_in_waits(std::function<void()> poll) { poll_ = std::move(poll); }
  // Makes room for `count` requests under way at once.
  void reserve(std::size_t count) { pending_.reserve(count); }

  MPI_Comm comm() const { return notice_->comm(); }
  bool failed() const { return error_ != nullptr; }
  // True if MPI may still use memory that it was given, perhaps for ever.
  bool under_way() const { return under_way_; }

  // Takes this rank out of all further operations because of `error`, and tells the others.
  // Allocates nothing.
  void leave(const std::exception_ptr& error) noexcept {
    if (!left_) left_ = error;
    if (!error_) error_ = error;
    if (!meeting_) notice_->tell_gone(left_);
  }
  // Handles an error of MPI's in a message, for which another rank may wait: takes this rank out,
  // unless the watchdog has found a fault that explains it.
  void fail_in_message(const std::exception_ptr& error) noexcept {
    if (error_) return;
    error_ = await_fault(watchdog_.get());
    if (!error_) leave(error);
  }
  // Runs `body`, a collective or a part of one. If it throws, this rank leaves, unless a wait in it
  // has failed.
  template <class Body>
  void run_collective(const Body& body) {
    try {
      body();
    } catch (...) {
      if (!error_) leave(std::current_exception());
      throw;
    }
  }
  // Makes the current wait, or the next one, leave. Any thread may call it.
  void break_off(const std::exception_ptr& error) noexcept {
    const std::lock_guard lock(breaking_);
    if (broken_off_) return;
    break_error_ = error;
    broken_off_.store(true, std::memory_order_release);
  }
  // For a mismatch of calls that another rank may not have noticed: throws a ValueError of the
  // text, now and from here on, and tells the others.
  [[noreturn]] void fail_mismatch(const std::string& text) { fail_mismatch(text, text); }
  void check_not_left() const {
    if (left_) std::rethrow_exception(left_);
  }
  // Throws the error of an earlier call, or the watchdog's.
  void check_usable() const {
    if (error_) std::rethrow_exception(error_);
    if (watchdog_) watchdog_->check();
  }

  // Starts a message; both sides' lengths are compared. `bytes` fits an int; with 0 there is no
  // message.
  void send(const void* data, std::size_t bytes, int peer) {
    if (bytes == 0) return;
    start("MPI_Isend", [&](MPI_Request* request) {
      return MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, peer, kTag, comm(), request);
    });
  }
  // Receives a message only once it has arrived: an MPI may write a message that is too long past
  // the end of its memory before it reports that (Open MPI 4.1 does). One at a time from each rank.
  void receive(void* data, std::size_t bytes, int peer) {
    if (bytes == 0) return;
    pending_.push_back({.request = MPI_REQUEST_NULL,
                        .call = "MPI_Imrecv",
                        .peer = peer,
                        .bytes = static_cast<int>(bytes),
                        .into = data,
                        .awaited = true});
  }
  // Starts a request by `call(request)`, which returns MPI's code.
  template <class StartCall>
  void start(const char* name, const StartCall& call) {
    MPI_Request request = MPI_REQUEST_NULL;
    under_way_ = true;
    const int code = call(&request);
    if (code != MPI_SUCCESS) fail(code, name);
    pending_.push_back({.request = request, .call = name});
  }

  // Returns when all ranks are here.
  void meet() {
    begin_to_meet();
    wait();
  }
  // Meets the other ranks before a call that blocks within MPI until all ranks make it. If another
  // rank failed before it came here, this throws on every rank, and none makes the call. If MPI
  // fails here or this rank breaks off, this returns all the same: others may already be blocked in
  // the call, where nothing can reach them, so this rank must make it too, and then call
  // `check_not_left`.
  void meet_to_block() {
    begin_to_meet();
    const lockstep::detail::ScopedValue meeting(meeting_, true);
    try {
      wait();
    } catch (...) {
      if (!left_) throw;
    }
  }
  // Makes another communicator of the same ranks, which returns errors. All ranks call it.
  void duplicate(MPI_Comm* copy) {
    start("MPI_Comm_idup",
          [&](MPI_Request* request) { return MPI_Comm_idup(comm(), copy, request); });
    wait();
    check_mpi(MPI_Comm_set_errhandler(*copy, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }

  // Waits until all requests have ended. Once the watchdog has found a fault, or another rank has
  // reported a failure, this wait and later ones fail if they have not ended within 100 ms: a
  // missing rank does nothing more, but what it did before still counts.
  void wait() {
    PollPause pause;
    std::optional<distributed::detail::Deadline> deadline;
    for (std::size_t at = 0; at < pending_.size();) {
      for (Pending& one : pending_) (void)has_come(one);
      if (has_ended(pending_[at])) {
        ++at;
        continue;
      }
      if (broken_off_.load(std::memory_order_acquire)) {
        leave(break_error_);
        std::rethrow_exception(error_);
      }
      const bool faulted = watchdog_ && watchdog_->faulted();
      const bool told = notice_->told() != nullptr;
      if (!faulted && !told) {
        const int code = notice_->look();
        if (code != MPI_SUCCESS) fail(code, "MPI_Improbe");
        if (poll_) poll_();
        if (error_) std::rethrow_exception(error_);  // a message's
        pause();
        continue;
      }
      if (!deadline) deadline.emplace(FailureNotice::last_chance);
      if (deadline->passed() && !has_ended(pending_[at])) {
        give_up(faulted ? watchdog_->exception() : notice_->told());
      }
      pause();
    }
    pending_.clear();
    under_way_ = false;
  }

 private:
  struct Pending {
    MPI_Request request;
    const char* call;
    int peer = -1;  // for a receive
    int bytes = 0;  // for a receive, like all below
    void* into = nullptr;
    bool awaited = false;           // a receive that has not come yet
    const char* differs = nullptr;  // the message has "fewer" bytes, or "more"
  };

  void begin_to_meet() {
    start("MPI_Ibarrier", [&](MPI_Request* request) { return MPI_Ibarrier(comm(), request); });
  }

  // Starts to receive a message that has come. True once it has.
  bool has_come(Pending& one) {
    if (!one.awaited) return true;
    int found = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status{};
    int code = MPI_Improbe(one.peer, kTag, comm(), &found, &message, &status);
    if (code != MPI_SUCCESS) fail(code, "MPI_Improbe");
    if (!found) return false;
    int bytes = 0;
    code = MPI_Get_count(&status, MPI_BYTE, &bytes);
    if (code != MPI_SUCCESS) fail(code, "MPI_Get_count");
    if (bytes != one.bytes) {  // received elsewhere, so that its sender goes on
      one.differs = bytes < one.bytes ? "fewer" : "more";
      // Never freed: MPI may write it in any case.
      one.into = std::make_unique<std::byte[]>(static_cast<std::size_t>(bytes)).release();
    }
    one.awaited = false;
    under_way_ = true;
    code = MPI_Imrecv(one.into, bytes, MPI_BYTE, &message, &one.request);
    if (code != MPI_SUCCESS) fail(code, one.call);
    return true;
  }

  bool has_ended(Pending& one) {
    if (!has_come(one)) return false;
    int ended = 0;
    const int code = MPI_Test(&one.request, &ended, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS) fail(code, one.call);
    if (ended && one.differs) fail_length(one.peer, one.differs);
    return ended != 0;
  }

  [[noreturn]] void give_up(std::exception_ptr error) {
    error_ = std::move(error);
    std::rethrow_exception(error_);
  }

  [[noreturn]] void fail_length(int peer, const char* how_many) {
    const auto text = [&](const std::string& whom) {
      return lockstep::detail::str("collectives do not match: rank ", peer, " sent ", how_many,
                                   " bytes than ", whom,
                                   " expected; with LOCKSTEP_DISTRIBUTED_DEBUG=DETAIL the ranks "
                                   "compare their calls");
    };
    fail_mismatch(text("this rank"), text(lockstep::detail::str("rank ", notice_->rank())));
  }
  [[noreturn]] void fail_mismatch(const std::string& own, const std::string& told) {
    notice_->tell_mismatch(told);
    give_up(std::make_exception_ptr(ValueError(own)));
  }

  [[noreturn]] void fail(int code, const char* call) {
    if (std::exception_ptr fault = await_fault(watchdog_.get())) give_up(std::move(fault));
    leave(std::make_exception_ptr(mpi_error(code, call)));
    std::rethrow_exception(error_);
  }

  const std::shared_ptr<const distributed::Watchdog> watchdog_;
  FailureNotice* const notice_;
  std::function<void()> poll_;
  std::vector<Pending> pending_;
  bool under_way_ = false;
  std::exception_ptr error_;  // the first one
  std::exception_ptr left_;   // why this rank has left, which the others are told
  bool meeting_ = false;      // in meet_to_block: the others are told later
  std::mutex breaking_;
  std::exception_ptr break_error_;  // set once, before `broken_off_`
  std::atomic<bool> broken_off_{false};
};

}  // namespace lockstep::mpi::detail
