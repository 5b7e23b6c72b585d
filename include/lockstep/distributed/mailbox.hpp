// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/distributed/carrier.hpp>
#include <lockstep/distributed/departure.hpp>
#include <lockstep/distributed/rank_failure.hpp>
#include <lockstep/error.hpp>

#include <cstddef>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep::distributed::detail {

// The messages between the ranks of a world of threads that only one side has come for yet. The
// side that comes second copies from the sender's memory to the receiver's and tells both.
//
// Threads: `mutex_` guards everything. Copies are made and `done` is called outside of it, by the
// thread that comes second or that leaves.
class Mailbox {
 public:
  explicit Mailbox(std::size_t size) : gone_(size) {}

  // With a stream the memory is on its GPU, and the copy is work of both sides' streams.
  void send(int rank, const Message& message, const void* data, Done done,
            const Stream* stream = nullptr);
  void receive(int rank, const Message& message, void* data, Done done,
               const Stream* stream = nullptr);

  // `rank` posts no more. What others wait for from it, or have for it, fails and says why; what it
  // has posted itself may still be taken. Allocates nothing but the errors, without which it does.
  void leave(int rank, const Departure& why) noexcept;

 private:
  struct GpuSide {
    Stream stream;
    Event ready;  // the memory may be used
  };
  struct Posted {
    int from;
    int to;
    bool sends;
    Message message;
    void* data;
    Done done;
    std::optional<GpuSide> gpu;
  };

  static std::optional<GpuSide> side_of(const Stream* stream);

  // Tells one side, which gets an exception of its own: what `make` returns, or what came in its
  // way. Nothing is left of it here by then.
  template <class Make>
  static void fail(const Posted& posted, const Make& make) noexcept {
    std::exception_ptr error;
    try {
      error = std::make_exception_ptr(make());
    } catch (...) {
      error = std::current_exception();
    }
    posted.done(std::move(error));
  }
  void fail_gone(const Posted& posted, const Departure& why) const noexcept;

  void post(Posted mine);

  // By the thread of `rank`, one of the two.
  void deliver(const Posted& sent, const Posted& received, int rank) const noexcept;

  // On the receiver's stream; what is issued to the sender's after this comes after it. Has ended
  // where it throws, unless the receiver's GPU has failed.
  static void copy_on_gpu(const Posted& sent, const Posted& received);

  const RankGone spare_{""};
  std::mutex mutex_;
  std::vector<Posted> posted_;   // in the order in which they came
  std::vector<Departure> gone_;  // of each rank
};

}  // namespace lockstep::distributed::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/mailbox.ipp>
#endif
