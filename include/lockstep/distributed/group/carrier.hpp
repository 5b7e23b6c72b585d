// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/distributed/group/call.hpp>
#include <lockstep/error.hpp>
#include <lockstep/non_copyable.hpp>
#include <lockstep/tensor/dtype.hpp>

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace lockstep::distributed::detail {

struct Message {
  int peer = 0;  // the other rank
  int tag = 0;
  Dtype dtype = Dtype::u8;
  std::size_t count = 0;
  bool sends = false;  // else this rank receives it

  std::size_t bytes() const { return count * element_size(dtype); }
  // "recv of 3 x f32 from rank 1 with tag 0"
  std::string text() const {
    return lockstep::detail::str(sends ? "send" : "recv", " of ", count, " x ", dtype,
                                 sends ? " to rank " : " from rank ", peer, " with tag ", tag);
  }
};

// Called once, when a message has been taken or has failed. Must not throw.
using Done = std::function<void(std::exception_ptr)>;

// One rank's connection to the others: the interface between process groups and what connects their
// ranks. A carrier moves and combines bytes and knows nothing of tensors. The bytes are in host
// memory, or on a GPU for which the carrier has a stream (`stream_for`); the group copies what is
// on other GPUs to host memory first.
//
// What a collective reads and writes, for n ranks, where a part is `call.count` elements:
//   all_reduce      inputs: 1 part               outputs: 1 part, may be the input
//   broadcast       inputs: 1 part at the root   outputs: 1 part at the others
//   reduce          inputs: 1 part               outputs: 1 part at the root, may be the input
//   all_gather      inputs: 1 part               outputs: n parts, its own may be the input
//   reduce_scatter  inputs: n parts              outputs: 1 part, may be its own part of the inputs
//   scatter         inputs: n parts at the root  outputs: 1 part, may be the root's own
//   gather          inputs: 1 part               outputs: n parts at the root, as all_gather's
// No other memory that is written overlaps memory that is read or written. Carriers add in the
// order of the ranks, half precision in f32 and rounded once, so that the same numbers give the
// same bits over each of them. Only NCCL has its own order.
//
// Threads: one thread at a time calls all members but the constructor, `rank`, `size` and
// `break_off`, in the same order on all ranks.
class Carrier : lockstep::detail::NonCopyable {
 public:
  Carrier(int rank, int size) : rank_(rank), size_(size) {}
  virtual ~Carrier() = default;

  int rank() const { return rank_; }
  int size() const { return size_; }

  // Runs one collective, and returns when this rank's outputs are written and nobody reads its
  // inputs any more. With a stream, that of `stream_for`, it issues the collective as work of the
  // stream and returns; if that fails later, a later call of the carrier, such as `progress`, calls
  // `failed`, at most once. Throws a ValueError, on every rank, if and only if the calls do not
  // match, and another Error if a rank is gone. After any other failure this rank has left.
  virtual void run(const Call& call, std::span<const void* const> inputs,
                   std::span<void* const> outputs, const Stream* stream, const Done& failed) = 0;

  // Takes this rank out of all further operations because of `error`: its own fail, and the others'
  // operations that need it fail with an error that names it, as soon as they can be told. Only the
  // first call counts.
  virtual void leave(const std::exception_ptr& error) noexcept = 0;

  // Does the part of `leave` that any thread may do at any time, even while an operation runs,
  // which may be waiting for a rank that waits for this one.
  virtual void break_off(const std::exception_ptr& /*error*/) noexcept {}

  // Runs `body`, and leaves if it throws. For a step of an operation whose failure no other rank
  // sees: the others would wait for this rank for ever, or take its next operation for this one.
  template <class Body>
  void or_leave(const Body& body) {
    try {
      body();
    } catch (...) {
      leave(std::current_exception());
      throw;
    }
  }

  // The error that the ranks' calls do not match, if another rank has reported one; else null.
  // Called when an operation fails after the watchdog has found a fault, which the mismatch may
  // have caused.
  virtual std::exception_ptr mismatch() noexcept { return nullptr; }

  // After `run` has thrown: true if that call's inputs and outputs may still be in use, nobody
  // knows for how long. The caller then never frees them.
  virtual bool buffers_in_flight() const { return false; }

  // Starts a message and returns. `data` is only read if this rank sends it. `done` is called by
  // any thread, perhaps before `start` returns. Messages between two ranks with the same tag are
  // taken in order. With a stream, that of `stream_for`, the memory is on its GPU, the copy is work
  // of the stream, and `done` is called when it is issued.
  virtual void start(const Message& message, void* data, Done done, const Stream* stream) = 0;
  // Whether a rank may send to itself.
  virtual bool reaches_itself() const { return true; }
  // Polls messages, and collectives on a stream, that need polling. True while there are any.
  virtual bool progress() { return false; }
  // Tells the carrier to call `poll` while an operation waits for other ranks, which may be waiting
  // for messages of this one. Called once, before all operations.
  virtual void call_in_waits(std::function<void()> /*poll*/) {}

  // The stream, always the same one, on which this carrier runs operations on memory of this GPU;
  // none if it takes them in host memory.
  virtual std::optional<Stream> stream_for(Device) { return {}; }
  // Whether other ranks' GPUs access the inputs and outputs on a stream in place. The group then
  // copies lent memory first, since its allocator may not let other GPUs access it.
  virtual bool works_across_gpus() const { return false; }

  // Makes a carrier among some of the ranks, in the given order; null on the others. All ranks call
  // it with the same list.
  virtual std::unique_ptr<Carrier> split(std::span<const int> members) = 0;

 private:
  const int rank_;
  const int size_;
};

}  // namespace lockstep::distributed::detail
