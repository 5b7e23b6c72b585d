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

// The pause between two looks for what another rank brings about: none at first, then the core is
// left to any other thread that wants it, and after some time the thread sleeps.
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

// How long an error of MPI's waits for what the watchdog may know. Set while no operation runs.
inline std::chrono::milliseconds fault_delay{2000};

// What the watchdog knows, if it comes to know of something soon: where a rank has died, MPI may
// find an error before the watchdog does, which knows more. Null without a fault.
inline std::exception_ptr await_fault(const distributed::Watchdog* watchdog) {
  if (!watchdog) return nullptr;
  const distributed::detail::Deadline deadline(fault_delay);
  while (!watchdog->faulted() && !deadline.passed()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return watchdog->exception();
}

// Runs what `start(request)` starts, to which all processes of a communicator come, outside of all
// groups. Lockstep needs no memory for it, so a rank that has none can still tell the others. Once
// the watchdog has found a fault it fails, as `Requests::wait` does; MPI may use the memory that it
// was given for ever then. `watchdog` is null if nobody watches.
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

// What one rank has under way in a communicator, and waits for: messages to and from other ranks,
// and collectives of MPI's. It waits by asking MPI again and again, so that it can stop when the
// watchdog knows of a fault.
//
// If a wait has failed, or the rank has left, MPI may still use the memory of what was under way.
// Nothing more is started then; the first error is thrown again. A collective is one `together`.
//
// Threads: the communication thread, or one that runs an operation in its place; `break_off` any.
class Requests {
 public:
  // The tag of its own messages. Others in the same communicator have greater ones, except for
  // notices.
  static constexpr int kTag = FailureNotice::kTag + 1;

  // If `watchdog` is null, nobody watches. Ranks tell each other of their failures by `notice`,
  // whose communicator it is; nobody else uses that.
  Requests(std::shared_ptr<const distributed::Watchdog> watchdog, FailureNotice* notice)
      : watchdog_(std::move(watchdog)), notice_(notice) {}

  // Each wait calls `poll` as long as it goes on.
  void call_in_waits(std::function<void()> poll) { poll_ = std::move(poll); }
  // So many requests can be under way at once without more memory.
  void reserve(std::size_t count) { pending_.reserve(count); }

  MPI_Comm comm() const { return notice_->comm(); }
  bool failed() const { return error_ != nullptr; }
  // True if MPI has been given memory that it may still read or write, perhaps for ever.
  bool under_way() const { return under_way_; }

  // Takes this rank out of everything further because of `error`, and tells the others. Needs no
  // memory.
  void leave(const std::exception_ptr& error) noexcept {
    if (!left_) left_ = error;
    if (!error_) error_ = error;
    if (!meeting_) notice_->tell_gone(left_);
  }
  // An error of MPI's in a message, which another rank may wait for: takes this rank out, unless
  // the watchdog knows of a fault that explains it.
  void fail_in_message(const std::exception_ptr& error) noexcept {
    if (error_) return;
    error_ = await_fault(watchdog_.get());
    if (!error_) leave(error);
  }
  // Runs `body`, a collective or a part of one. If it throws, this rank leaves, unless a wait in it
  // has failed.
  template <class Body>
  void together(const Body& body) {
    try {
      body();
    } catch (...) {
      if (!error_) leave(std::current_exception());
      throw;
    }
  }
  // Has the wait that is under way, or the next one, leave. Any thread may call it.
  void break_off(const std::exception_ptr& error) noexcept {
    const std::lock_guard lock(breaking_);
    if (broken_off_) return;
    break_error_ = error;
    broken_off_.store(true, std::memory_order_release);
  }
  // For what this rank has found of the calls, and another one may not have: throws a ValueError of
  // the text, now and from here on, and tells the others.
  [[noreturn]] void fail_mismatch(const std::string& text) { fail_mismatch(text, text); }
  void check_not_left() const {
    if (left_) std::rethrow_exception(left_);
  }
  // Throws the error of an earlier call, or the fault that the watchdog has found.
  void check_usable() const {
    if (error_) std::rethrow_exception(error_);
    if (watchdog_) watchdog_->check();
  }

  // Starts a message; the lengths of both sides are compared. `bytes` is at most what an int
  // counts; there is no message of 0.
  void send(const void* data, std::size_t bytes, int peer) {
    if (bytes == 0) return;
    start("MPI_Isend", [&](MPI_Request* request) {
      return MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, peer, kTag, comm(), request);
    });
  }
  // Takes a message when it has come, not before: an MPI may write a message that is too long
  // behind the memory for it before it says so (Open MPI 4.1 does). One at a time from each rank.
  void receive(void* data, std::size_t bytes, int peer) {
    if (bytes == 0) return;
    pending_.push_back({.request = MPI_REQUEST_NULL,
                        .call = "MPI_Imrecv",
                        .peer = peer,
                        .bytes = static_cast<int>(bytes),
                        .into = data,
                        .awaited = true});
  }
  // Starts what `call(request)` starts; `call` returns MPI's code.
  template <class StartCall>
  void start(const char* name, const StartCall& call) {
    MPI_Request request = MPI_REQUEST_NULL;
    under_way_ = true;
    const int code = call(&request);
    if (code != MPI_SUCCESS) fail(code, name);
    pending_.push_back({.request = request, .call = name});
  }

  // Returns when all ranks have come.
  void meet() {
    begin_to_meet();
    wait();
  }
  // As `meet`, before a call that blocks within MPI until all ranks have come to that. Once this
  // has begun the rank comes to that call even if MPI fails here, or it breaks off: others may be
  // there already, where nothing can be told them. So this returns then, and `check_not_left`
  // throws after that call. It throws if another rank has failed before it came here: no rank gets
  // further then.
  void meet_to_block() {
    begin_to_meet();
    const lockstep::detail::ScopedValue meeting(meeting_, true);
    try {
      wait();
    } catch (...) {
      if (!left_) throw;
    }
  }
  // Makes another communicator of the same ranks, which returns errors. All of them come to it.
  void duplicate(MPI_Comm* copy) {
    start("MPI_Comm_idup",
          [&](MPI_Request* request) { return MPI_Comm_idup(comm(), copy, request); });
    wait();
    check_mpi(MPI_Comm_set_errhandler(*copy, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }

  // Waits until all that was started has ended. Once the watchdog has found a fault, or another
  // rank has told that it has failed, this wait and those after it fail if they have not ended
  // within 100 ms: a rank that is missing comes to nothing any more, but what it had done before
  // still counts.
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
        if (error_) std::rethrow_exception(error_);  // of a message
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
    int peer = -1;  // of a receive
    int bytes = 0;  // of a receive, as all below
    void* into = nullptr;
    bool awaited = false;           // a receive that has not come yet
    const char* differs = nullptr;  // a receive has "fewer" bytes, or "more"
  };

  void begin_to_meet() {
    start("MPI_Ibarrier", [&](MPI_Request* request) { return MPI_Ibarrier(comm(), request); });
  }

  // Begins to take a message that is there, if it has the length that is expected.
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
    if (bytes != one.bytes) {  // taken elsewhere, so that its sender goes on
      one.differs = bytes < one.bytes ? "fewer" : "more";
      // Never freed: MPI may write it whatever comes of this.
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
    notice_->tell(told);
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
  std::exception_ptr left_;   // what the others have been told, or will be
  bool meeting_ = false;      // in meet_to_block: they are told later
  std::mutex breaking_;
  std::exception_ptr break_error_;  // set before `broken_off_` is, once
  std::atomic<bool> broken_off_{false};
};

}  // namespace lockstep::mpi::detail
