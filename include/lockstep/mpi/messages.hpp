// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/carrier.hpp>
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
#include <utility>
#include <vector>

namespace lockstep::mpi::detail {

// The messages of one communicator that are on their way. One of more bytes than an int counts goes
// in pieces; MPI keeps those of one tag in order.
//
// Threads: the communication thread alone, or whoever runs in its place.
class Messages {
 public:
  using Message = distributed::detail::Message;
  using Done = distributed::detail::Done;

  // Nobody watches if `watchdog` is null.
  Messages(MPI_Comm comm, std::shared_ptr<const distributed::Watchdog> watchdog)
      : comm_(comm), watchdog_(std::move(watchdog)) {}

  void send(const Message& message, const void* data, Done done) {
    start(message, std::move(done), false, [&](std::size_t at, int bytes, MPI_Request* request) {
      check_mpi(MPI_Isend(static_cast<const std::byte*>(data) + at, bytes, MPI_BYTE, message.peer,
                          tag_of(message), comm_, request),
                "MPI_Isend");
    });
  }

  void receive(const Message& message, void* data, Done done) {
    start(message, std::move(done), true, [&](std::size_t at, int bytes, MPI_Request* request) {
      check_mpi(MPI_Irecv(static_cast<std::byte*>(data) + at, bytes, MPI_BYTE, message.peer,
                          tag_of(message), comm_, request),
                "MPI_Irecv");
    });
  }

  // Tells those whose message has been taken, or never will be, because of what the watchdog has
  // found. True while there are others.
  bool progress() {
    std::erase_if(flights_, [](Flight& flight) {
      if (!flight.advance()) return false;
      flight.done(std::move(flight.error));
      return true;
    });
    if (watchdog_ && watchdog_->faulted()) desert();
    return !flights_.empty();
  }

  // None will be taken any more. What MPI may still read or write stays as it is for ever.
  void desert() noexcept {
    if (flights_.empty()) return;
    std::exception_ptr error = watchdog_ ? watchdog_->exception() : nullptr;
    if (!error) error = std::make_exception_ptr(Error("the process group was destroyed"));
    for (Flight& flight : flights_) {
      distributed::detail::keep_for_ever(std::make_shared<Done>(flight.done));
      flight.done(error);
    }
    flights_.clear();
  }

  // Receives that nothing came for are called off. What was sent is left to MPI, and its memory
  // with it.
  void abandon() noexcept {
    for (Flight& flight : flights_) {
      if (flight.receives) {
        for (MPI_Request& request : flight.requests) {
          MPI_Cancel(&request);
          MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        flight.done(std::make_exception_ptr(Error("recv: the process group was destroyed")));
      } else {
        distributed::detail::keep_for_ever(std::make_shared<Done>(std::move(flight.done)));
      }
    }
    flights_.clear();
  }

 private:
  struct Flight {
    Message message;
    bool receives;
    Done done;
    std::vector<MPI_Request> requests;
    std::size_t taken = 0;     // so many of them have ended
    std::size_t received = 0;  // bytes
    std::exception_ptr error;

    // True once all pieces have ended.
    bool advance() {
      for (; taken < requests.size(); ++taken) {
        int ended = 0;
        MPI_Status status{};
        const int code = MPI_Test(&requests[taken], &ended, &status);
        if (code == MPI_SUCCESS && !ended) return false;
        try {
          check_mpi(code, receives ? "MPI_Irecv" : "MPI_Isend");
          if (receives) add_bytes(status);
        } catch (...) {
          error = std::current_exception();
        }
      }
      return true;
    }

    void add_bytes(const MPI_Status& status) {
      int bytes = 0;
      check_mpi(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
      received += static_cast<std::size_t>(bytes);
      check<ValueError>(taken + 1 < requests.size() || received == message.bytes(),
                        "messages do not match: rank ", message.peer, " sent ", received,
                        " bytes, but ", message.count, " x ", message.dtype, " are received");
    }
  };

  static int tag_of(const Message& message) {
    check<ValueError>(message.tag < std::numeric_limits<int>::max() - Requests::kTag,
                      "expected a tag of less than ", std::numeric_limits<int>::max(), ", got ",
                      message.tag);
    return message.tag + Requests::kTag + 1;
  }

  template <class Start>
  void start(const Message& message, Done done, bool receives, const Start& start_piece) {
    constexpr std::size_t kMost = std::size_t{1} << 30;
    const std::size_t pieces = std::max<std::size_t>(1, (message.bytes() + kMost - 1) / kMost);
    Flight flight{.message = message,
                  .receives = receives,
                  .done = std::move(done),
                  .requests = std::vector<MPI_Request>(pieces, MPI_REQUEST_NULL),
                  .error = nullptr};
    for (std::size_t i = 0; i < pieces; ++i) {
      const std::size_t bytes = std::min(kMost, message.bytes() - i * kMost);
      start_piece(i * kMost, static_cast<int>(bytes), &flight.requests[i]);
    }
    flights_.push_back(std::move(flight));
  }

  const MPI_Comm comm_;
  const std::shared_ptr<const distributed::Watchdog> watchdog_;
  std::vector<Flight> flights_;
};

}  // namespace lockstep::mpi::detail
