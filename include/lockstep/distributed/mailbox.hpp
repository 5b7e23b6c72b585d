// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/distributed/carrier.hpp>
#include <lockstep/error.hpp>

#include <cstddef>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
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
  explicit Mailbox(int size) : gone_(static_cast<std::size_t>(size)) {}

  // With a stream the memory is on its GPU, and the copy is work of both sides' streams.
  void send(int rank, const Message& message, const void* data, Done done,
            const Stream* stream = nullptr);
  void receive(int rank, const Message& message, void* data, Done done,
               const Stream* stream = nullptr);

  // `rank` posts no more. What others wait for from it, or have for it, fails with `reason`; what
  // it has posted itself may still be taken.
  void leave(int rank, const std::string& reason);

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

  static std::exception_ptr gone(const std::string& reason);

  void post(Posted mine);

  static void deliver(const Posted& sent, const Posted& received);

  // Each side gets an exception of its own, of which nothing is left here by then.
  template <class E>
  static void fail(const Posted& sent, const Posted& received, const std::string& text) {
    for (const Posted* const posted : {&sent, &received}) {
      std::exception_ptr error = std::make_exception_ptr(E(text));
      posted->done(std::move(error));
    }
  }

  // On the receiver's stream; what is issued to the sender's after this comes after it.
  static void copy_on_gpu(const Posted& sent, const Posted& received);

  std::mutex mutex_;
  std::vector<Posted> posted_;     // in the order in which they came
  std::vector<std::string> gone_;  // why a rank is; empty while it is there
};

}  // namespace lockstep::distributed::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/mailbox.ipp>
#endif
