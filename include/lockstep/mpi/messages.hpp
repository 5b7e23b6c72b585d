// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/carrier.hpp>
#include <lockstep/distributed/deadline.hpp>
#include <lockstep/distributed/kept_memory.hpp>
#include <lockstep/distributed/watchdog.hpp>
#include <lockstep/error.hpp>
#include <lockstep/mpi/api.hpp>
#include <lockstep/mpi/check.hpp>
#include <lockstep/mpi/requests.hpp>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep::mpi::detail {

// The messages of one communicator that are on their way. One of more bytes than an int counts goes
// in pieces; MPI keeps those of one tag in order.
//
// One that the other rank does nothing about for the watchdog's `collective_timeout` fails, and all
// others with it: were more to come from that rank later, it would be taken for what is received
// after this. No message is started then.
//
// Threads: the communication thread alone, or whoever runs in its place.
class Messages {
 public:
  using Message = distributed::detail::Message;
  using Done = distributed::detail::Done;

  // Nobody watches, and nothing is ever too late, if `watchdog` is null.
  Messages(MPI_Comm comm, std::shared_ptr<const distributed::Watchdog> watchdog)
      : comm_(comm), watchdog_(std::move(watchdog)) {}

  void send(const Message& message, const void* data, Done done) {
    flights_.push_back(begin(message, std::move(done), false));
    flights_.back().start(static_cast<const std::byte*>(data), comm_);
  }

  // Taken when it has come: see Requests::receive.
  void receive(const Message& message, void* data, Done done) {
    Flight flight = begin(message, std::move(done), true);
    flight.into = static_cast<std::byte*>(data);
    flights_.push_back(std::move(flight));
  }

  // Tells those whose message has been taken, or never will be, because of what the watchdog has
  // found. True while there are others.
  bool progress() {
    std::vector<std::pair<int, int>> awaited;  // peers and tags: what is received later comes later
    std::erase_if(flights_, [&](Flight& flight) {
      if (flight.receives && !flight.has_started()) {
        const std::pair<int, int> from(flight.message.peer, flight.tag);
        if (std::find(awaited.begin(), awaited.end(), from) != awaited.end()) return false;
        flight.match(comm_);
        if (!flight.has_started()) awaited.push_back(from);
      }
      if (!flight.advance()) return false;
      flight.done(std::move(flight.error));
      return true;
    });
    if (watchdog_ && watchdog_->faulted()) {
      desert();
    } else {
      look_at_the_clock();
    }
    return !flights_.empty();
  }

  // None will be taken any more. What MPI may still read or write stays as it is for ever.
  void desert() noexcept {
    if (flights_.empty()) return;
    std::exception_ptr error = watchdog_ ? watchdog_->exception() : nullptr;
    if (!error) error = std::make_exception_ptr(Error("the process group was destroyed"));
    leave_all([&](const Flight&) { return error; });
  }

  // The group has gone: nothing more is received, and what was sent is left to MPI.
  void abandon() noexcept {
    leave_all([](const Flight& flight) {
      return std::make_exception_ptr(
          Error(lockstep::detail::str(flight.name(), ": the process group was destroyed")));
    });
  }

 private:
  using Deadline = distributed::detail::Deadline;

  static constexpr std::size_t kMost = std::size_t{1} << 30;

  struct Flight {
    Message message;
    bool receives;
    int tag;  // MPI's
    Done done;
    std::optional<Deadline> deadline;
    std::vector<MPI_Request> requests;                 // of the pieces
    std::byte* into = nullptr;                         // of a receive
    std::vector<std::vector<std::byte>> refused = {};  // pieces that are too long for it
    std::size_t started = 0;                           // so many pieces are sent, or have come
    std::size_t taken = 0;                             // so many of these have ended
    std::size_t received = 0;                          // bytes
    std::exception_ptr error = nullptr;

    const char* name() const { return receives ? "recv" : "send"; }
    bool has_started() const { return started == requests.size(); }
    // The bytes of a piece.
    std::size_t room(std::size_t piece) const {
      return std::min(kMost, message.bytes() - piece * kMost);
    }

    // Nothing more comes of it.
    void fail(int code, const char* call) {
      if (!error) error = std::make_exception_ptr(mpi_error(code, call));
      requests.resize(started);
    }

    void start(const std::byte* from, MPI_Comm comm) {
      while (!has_started()) {
        const int code = MPI_Isend(from + started * kMost, static_cast<int>(room(started)),
                                   MPI_BYTE, message.peer, tag, comm, &requests[started]);
        if (code != MPI_SUCCESS) return fail(code, "MPI_Isend");
        ++started;
      }
    }

    // Begins to take the pieces that are there. A shorter one than the first ones are is the last.
    void match(MPI_Comm comm) {
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
        std::byte* to = into + started * kMost;
        if (length > room(started)) to = refused.emplace_back(length).data();
        code = MPI_Imrecv(to, bytes, MPI_BYTE, &piece, &requests[started]);
        if (code != MPI_SUCCESS) return fail(code, "MPI_Imrecv");
        received += length;
        ++started;
        if (length < kMost) requests.resize(started);
      }
    }

    // True once all pieces have ended.
    bool advance() {
      for (; taken < started; ++taken) {
        int ended = 0;
        const int code = MPI_Test(&requests[taken], &ended, MPI_STATUS_IGNORE);
        if (code == MPI_SUCCESS && !ended) return false;
        if (code != MPI_SUCCESS) fail(code, receives ? "MPI_Imrecv" : "MPI_Isend");
      }
      if (!has_started()) return false;
      if (receives && !error && received != message.bytes()) {
        error = std::make_exception_ptr(ValueError(lockstep::detail::str(
            "messages do not match: rank ", message.peer, " sent ", received, " bytes, but ",
            message.count, " x ", message.dtype, " are received")));
      }
      return true;
    }
  };

  static int tag_of(const Message& message) {
    constexpr int kEnd = std::numeric_limits<int>::max() - Requests::kTag;
    check<ValueError>(message.tag < kEnd, "expected a tag of less than ", kEnd, ", got ",
                      message.tag);
    return message.tag + Requests::kTag + 1;
  }

  Flight begin(const Message& message, Done done, bool receives) const {
    if (error_) std::rethrow_exception(error_);
    const std::size_t pieces = std::max<std::size_t>(1, (message.bytes() + kMost - 1) / kMost);
    Flight flight{.message = message,
                  .receives = receives,
                  .tag = tag_of(message),
                  .done = std::move(done),
                  .deadline = {},
                  .requests = std::vector<MPI_Request>(pieces, MPI_REQUEST_NULL)};
    if (watchdog_) flight.deadline.emplace(watchdog_->options().collective_timeout);
    return flight;
  }

  void look_at_the_clock() {
    const auto is_late = [](const Flight& one) { return one.deadline && one.deadline->passed(); };
    const auto late = std::find_if(flights_.begin(), flights_.end(), is_late);
    if (late == flights_.end()) return;
    const Message& message = late->message;
    error_ = std::make_exception_ptr(Error(lockstep::detail::str(
        late->name(), " of ", message.count, " x ", message.dtype,
        late->receives ? " from rank " : " to rank ", message.peer, " with tag ", message.tag,
        late->receives ? ": nothing has come for " : ": it has not been received for ",
        distributed::detail::Seconds{late->deadline->timeout()},
        "; the group has no messages any more")));
    leave_all([&](const Flight&) { return error_; });
  }

  // Ends those that are under way, each with the error that `error_of` has for it. What MPI may use
  // is kept.
  template <class ErrorOf>
  void leave_all(const ErrorOf& error_of) noexcept {
    for (Flight& flight : std::exchange(flights_, {})) {
      const auto kept = std::make_shared<Flight>(std::move(flight));
      if (kept->started > kept->taken) distributed::detail::keep_for_ever(kept);
      kept->done(error_of(*kept));
    }
  }

  const MPI_Comm comm_;
  const std::shared_ptr<const distributed::Watchdog> watchdog_;
  std::vector<Flight> flights_;
  std::exception_ptr error_;  // of a message that was too late
};

}  // namespace lockstep::mpi::detail
