// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/relayed_error.hpp>
#include <lockstep/distributed/group/carrier.hpp>
#include <lockstep/distributed/group/deadline.hpp>
#include <lockstep/distributed/group/rank_failure.hpp>
#include <lockstep/distributed/watchdog/watchdog.hpp>
#include <lockstep/error.hpp>
#include <lockstep/mpi/api.hpp>
#include <lockstep/mpi/failure_notice.hpp>
#include <lockstep/mpi/requests.hpp>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::mpi::detail {

// The messages of one communicator that are under way. A message of more bytes than an int counts
// is sent in pieces; MPI keeps those of one tag in order.
//
// If the other rank does nothing about a message for the watchdog's `collective_timeout`, that
// message fails, and so do all others, now and later: what the rank sent afterwards would be taken
// for another message. After a rank has reported a failure, what it had sent still arrives; any
// other message to or from it fails. An error of MPI's is a `failure` of this rank, which ends all
// its messages, since others may wait for the one that failed.
//
// Threads: the communication thread, or one that runs an operation in its place.
class Messages {
 public:
  using Message = distributed::detail::Message;
  using Done = distributed::detail::Done;

  // With a null `watchdog` no message is ever too late. Ranks tell each other of failures by
  // `notice`, which has the communicator.
  Messages(std::shared_ptr<const distributed::Watchdog> watchdog, FailureNotice* notice)
      : watchdog_(std::move(watchdog)), notice_(notice) {}

  // Throws if the group can have no more messages, or if the tag is too large.
  void check(const Message& message) const {
    if (error_) std::rethrow_exception(error_);
    lockstep::check<ValueError>(message.tag < end_of_tags_, "expected a tag of less than ",
                                end_of_tags_, ", got ", message.tag);
  }

  // Called after `check`. If it throws, nothing has started. A message to this rank is received
  // only once it has arrived: see Requests::receive.
  void start(const Message& message, void* data, Done done) {
    const std::size_t pieces = message.bytes() / kMost + 1;  // a full one is never the last
    auto pending = std::make_unique<MessageInFlight>(
        MessageInFlight{.message = message,
                        .data = static_cast<std::byte*>(data),
                        .tag = message.tag + Requests::kTag + 1,
                        .done = std::move(done),
                        .requests = std::vector<MPI_Request>(pieces, MPI_REQUEST_NULL)});
    if (watchdog_) pending->deadline.emplace(watchdog_->options().collective_timeout);
    in_flight_.push_back(std::move(pending));
    if (message.sends) in_flight_.back()->start(notice_->comm());
  }

  // Calls `done` for messages that have been taken, or never will be, as when the watchdog has
  // found a fault. True while there are others.
  bool progress() noexcept {
    if (in_flight_.empty()) return false;
    if (finalized()) {
      fail_in_flight();
      return false;
    }
    for (std::size_t i = 0; i < in_flight_.size();) {
      MessageInFlight& pending = *in_flight_[i];
      // Of equal receives the earlier one gets the earlier message.
      if (pending.awaited() && !awaited_before(i)) pending.match(notice_->comm());
      if (!pending.advance()) {
        ++i;
        continue;
      }
      const std::unique_ptr<MessageInFlight> ended = take(i);
      if (ended->mpi_failed && !mpi_failed_) {
        mpi_failed_ = true;
        error_ = ended->error;
      }
      ended->done(std::move(ended->error));
    }
    if (watchdog_ && watchdog_->faulted()) {
      fail_in_flight();
    } else if (mpi_failed_) {
      leave([&](const MessageInFlight&) { return error_; });
    } else {
      fail_messages_of_lost_ranks();
      check_deadlines();
    }
    return !in_flight_.empty();
  }

  bool are_in_flight() const noexcept { return !in_flight_.empty(); }

  // MPI's first error, or null.
  std::exception_ptr failure() const { return mpi_failed_ ? error_ : nullptr; }

  // Fails all messages under way, with the watchdog's fault, or because the group or MPI has ended.
  // Memory that MPI may still use is never freed: unless MPI has failed, it still delivers what was
  // sent.
  void fail_in_flight() noexcept {
    leave([&](const MessageInFlight& pending) {
      return lockstep::detail::thrown_by([&] {
        if (watchdog_) watchdog_->check();
        check_not_finalized();
        lockstep::detail::fail<Error>(pending.message.text(), ": the process group was destroyed");
      });
    });
  }

 private:
  using Deadline = distributed::detail::Deadline;

  static constexpr std::size_t kMost = std::size_t{1} << 30;

  // Tags of messages are below this: MPI's greatest tag, less those that are reserved.
  static int end_of_tags() {
    const void* greatest = nullptr;
    int known = 0;
    check_mpi(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &greatest, &known),
              "MPI_Comm_get_attr");
    constexpr int kLeastOfAnyMpi = 32767;
    return (known ? *static_cast<const int*>(greatest) : kLeastOfAnyMpi) - Requests::kTag;
  }

  struct MessageInFlight {
    Message message;
    std::byte* data;  // only read if the message is sent
    int tag;          // MPI's
    Done done;
    std::optional<Deadline> deadline = {};
    std::optional<Deadline> last_chance = {};          // set once the other rank has gone
    std::vector<MPI_Request> requests;                 // one for each piece
    std::vector<std::vector<std::byte>> refused = {};  // holds pieces that are too long
    std::size_t started = 0;                           // pieces that are sent, or have come
    std::size_t taken = 0;                             // of these, those that have ended
    std::size_t received = 0;                          // in bytes
    std::exception_ptr error = nullptr;
    bool mpi_failed = false;  // the error is MPI's

    bool has_started() const { return started == requests.size(); }
    // A receive of which not all has come.
    bool awaited() const { return !message.sends && !has_started(); }
    // The bytes of a piece, at most kMost.
    std::size_t room(std::size_t piece) const {
      return std::min(kMost, message.bytes() - std::min(message.bytes(), piece * kMost));
    }

    // Starts no further piece.
    template <class Raise>
    void fail(const Raise& raise) noexcept {
      if (!error) error = lockstep::detail::thrown_by(raise);
      requests.resize(started);
    }
    void fail(int code, const char* call) noexcept {
      mpi_failed = mpi_failed || !error;
      fail([&] { throw mpi_error(code, call); });
    }

    void start(MPI_Comm comm) noexcept {
      while (!has_started()) {
        const int code = MPI_Isend(data + started * kMost, static_cast<int>(room(started)),
                                   MPI_BYTE, message.peer, tag, comm, &requests[started]);
        if (code != MPI_SUCCESS) return fail(code, "MPI_Isend");
        ++started;
      }
    }

    // Starts to receive the pieces that have come, even those without room, or else the next
    // message would begin with them. The last piece is shorter than a full one.
    void match(MPI_Comm comm) noexcept {
      while (!has_started()) {
        int found = 0;
        int bytes = 0;
        MPI_Message piece = MPI_MESSAGE_NULL;
        MPI_Status status{};
        int code = MPI_Improbe(message.peer, tag, comm, &found, &piece, &status);
        if (code == MPI_SUCCESS && !found) return;
        if (code == MPI_SUCCESS) code = MPI_Get_count(&status, MPI_BYTE, &bytes);
        if (code != MPI_SUCCESS) return fail(code, "MPI_Improbe");
        const auto length = static_cast<std::size_t>(bytes);
        std::byte* to = data + std::min(message.bytes(), started * kMost);
        try {
          if (length > room(started)) to = refused.emplace_back(length).data();
          if (length == kMost && started + 1 == requests.size()) {
            requests.push_back(MPI_REQUEST_NULL);
          }
        } catch (...) {
          return fail([] { throw; });
        }
        code = MPI_Imrecv(to, bytes, MPI_BYTE, &piece, &requests[started]);
        if (code != MPI_SUCCESS) return fail(code, "MPI_Imrecv");
        received += length;
        ++started;
        if (length < kMost) requests.resize(started);
      }
    }

    // True once all pieces have ended.
    bool advance() noexcept {
      for (; taken < started; ++taken) {
        int ended = 0;
        const int code = MPI_Test(&requests[taken], &ended, MPI_STATUS_IGNORE);
        if (code == MPI_SUCCESS && !ended) return false;
        if (code != MPI_SUCCESS) fail(code, message.sends ? "MPI_Isend" : "MPI_Imrecv");
      }
      if (!has_started()) return false;
      if (!message.sends && !error && received != message.bytes()) {
        error = lockstep::detail::thrown_by([&] {
          lockstep::detail::fail<ValueError>("messages do not match: rank ", message.peer, " sent ",
                                             received, " bytes, but ", message.count, " x ",
                                             message.dtype, " are received");
        });
      }
      return true;
    }
  };

  // True if an earlier message from the same rank with the same tag is still to come.
  bool awaited_before(std::size_t i) const noexcept {
    const MessageInFlight& mine = *in_flight_[i];
    for (std::size_t j = 0; j < i; ++j) {
      const MessageInFlight& other = *in_flight_[j];
      if (other.awaited() && other.message.peer == mine.message.peer && other.tag == mine.tag) {
        return true;
      }
    }
    return false;
  }

  // Ends messages whose other rank has failed and does nothing more about them.
  void fail_messages_of_lost_ranks() noexcept {
    if (in_flight_.empty()) return;
    if (const int code = notice_->look(); code != MPI_SUCCESS) {
      fail_all([&] { throw mpi_error(code, "MPI_Improbe"); });
      mpi_failed_ = true;
      return;
    }
    leave([&](MessageInFlight& pending) -> std::exception_ptr {
      const std::exception_ptr& gone = notice_->gone(pending.message.peer);
      if (!gone || (!pending.message.sends && pending.has_started())) return nullptr;
      if (!pending.last_chance) pending.last_chance.emplace(FailureNotice::last_chance);
      return pending.last_chance->passed() ? gone_error(pending, gone) : nullptr;
    });
  }

  static std::exception_ptr gone_error(const MessageInFlight& pending,
                                       const std::exception_ptr& gone) noexcept {
    std::exception_ptr error = gone;  // returned if there is no memory for more
    (void)lockstep::detail::thrown_by([&] {
      const auto told = lockstep::detail::described(gone).what;
      if (!told) return;
      error = std::make_exception_ptr(distributed::RankGone(pending.message.text() + ": " + *told));
    });
    return error;
  }

  void check_deadlines() noexcept {
    // The first message has the earliest deadline.
    if (in_flight_.empty() || !watchdog_ || !in_flight_.front()->deadline->passed()) return;
    const MessageInFlight& late = *in_flight_.front();
    fail_all([&] {
      lockstep::detail::fail<Error>(
          late.message.text(),
          late.message.sends ? ": it has not been received for " : ": nothing has come for ",
          distributed::detail::Seconds{late.deadline->timeout()},
          "; the group has no messages any more");
    });
  }

  // Fails all messages, present and later, with what `raise` throws.
  template <class Raise>
  void fail_all(const Raise& raise) noexcept {
    error_ = lockstep::detail::thrown_by(raise);
    leave([&](const MessageInFlight&) { return error_; });
  }

  // Ends the messages for which `error_of` returns an error, but none that a `done` starts
  // meanwhile. Memory that MPI may use is never freed.
  template <class ErrorOf>
  void leave(const ErrorOf& error_of) noexcept {
    std::size_t i = 0;
    for (std::size_t left = in_flight_.size(); left > 0 && i < in_flight_.size(); --left) {
      if (std::exception_ptr error = error_of(*in_flight_[i])) {
        std::unique_ptr<MessageInFlight> ended = take(i);
        ended->done(std::move(error));
        if (ended->started > ended->taken) (void)ended.release();
      } else {
        ++i;
      }
    }
  }

  // Removes a message from the list before its `done` is called, which may start another.
  std::unique_ptr<MessageInFlight> take(std::size_t i) noexcept {
    std::unique_ptr<MessageInFlight> pending = std::move(in_flight_[i]);
    in_flight_.erase(in_flight_.begin() + static_cast<std::ptrdiff_t>(i));
    return pending;
  }

  const int end_of_tags_ = end_of_tags();
  const std::shared_ptr<const distributed::Watchdog> watchdog_;
  FailureNotice* const notice_;
  std::vector<std::unique_ptr<MessageInFlight>> in_flight_;
  std::exception_ptr error_;  // for all messages: one was too late, or MPI has failed
  bool mpi_failed_ = false;   // it is the latter
};

}  // namespace lockstep::mpi::detail
