// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/distributed/group/carrier.hpp>
#include <lockstep/distributed/group/departure.hpp>
#include <lockstep/distributed/group/rank_failure.hpp>
#include <lockstep/error.hpp>

#include <cstddef>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep::distributed::detail {

// Messages between the ranks of a world of threads that only one side has called for yet. The side
// that calls second copies from the sender's memory to the receiver's and tells both.
//
// Threads: `mutex_` guards everything. Copies are made and `done` is called outside of it, by the
// thread that comes second or that leaves.
class Mailbox {
 public:
  explicit Mailbox(std::size_t size) : gone_(size) {}

  // With a stream the memory is on its GPU; the copy is work of the receiver's stream, and the
  // sender's waits for it.
  void send(int rank, const Message& message, const void* data, Done done,
            const Stream* stream = nullptr);
  void receive(int rank, const Message& message, void* data, Done done,
               const Stream* stream = nullptr);

  // `rank` posts no more messages. Those that others have posted to it or await from it fail and
  // say why; its own may still be taken. Allocates only the errors, and does without the memory for
  // them.
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

  // Tells one side with an exception of its own: what `make` returns, or what making it throws.
  // This thread holds no reference to it when `done` is called.
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

  // Copies, and tells both sides. Called by the thread of `rank`, one of the two.
  void deliver(const Posted& sent, const Posted& received, int rank) const noexcept;

  // Copies on the receiver's stream; what is issued to the sender's stream afterwards comes after
  // that. If it throws, the copy has ended, unless the receiver's GPU has failed.
  static void copy_on_gpu(const Posted& sent, const Posted& received);

  const RankGone spare_{""};
  std::mutex mutex_;
  std::vector<Posted> posted_;   // in the order in which they came
  std::vector<Departure> gone_;  // of each rank
};

}  // namespace lockstep::distributed::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/thread/impl/mailbox.ipp>
#endif
