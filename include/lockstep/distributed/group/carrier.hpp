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

namespace lockstep::distributed::detail {

struct Message {
  int peer = 0;  // the other rank
  int tag = 0;
  Dtype dtype = Dtype::u8;
  std::size_t count = 0;
  bool sends = false;  // else this rank receives it

  std::size_t bytes() const { return count * element_size(dtype); }
};

// Called once when a message has been taken or has failed; throws nothing.
using Done = std::function<void(std::exception_ptr)>;

// One rank's connection to the others: the seam between process groups and what connects their
// ranks. A carrier moves and combines bytes and knows nothing of tensors. The bytes are in host
// memory, or on a GPU for which it has a stream (`stream_for`); the group copies what is on other
// GPUs to host memory first.
//
// What a collective reads and writes, where n is the number of ranks and a part is `call.count`
// elements:
//   all_reduce      inputs: 1 part               outputs: 1 part, may be the input
//   broadcast       inputs: 1 part at the root   outputs: 1 part at the others
//   reduce          inputs: 1 part               outputs: 1 part at the root, may be the input
//   all_gather      inputs: 1 part               outputs: n parts, the own one may be the input
//   reduce_scatter  inputs: n parts              outputs: 1 part, may be the own part of the inputs
//   scatter         inputs: n parts at the root  outputs: 1 part, may be the root's own
//   gather          inputs: 1 part               outputs: n parts at the root, as all_gather's
// Otherwise no memory that is written is another's, or read.
// Carriers add in the order of the ranks, half precision in f32 and rounded once, so that the same
// numbers give the same bits over each of them; NCCL alone has an order of its own.
//
// Threads: all members but the constructor, `rank` and `size` are called by one thread at a time,
// in the same order on all ranks.
class Carrier : lockstep::detail::NonCopyable {
 public:
  Carrier(int rank, int size) : rank_(rank), size_(size) {}
  virtual ~Carrier() = default;

  int rank() const { return rank_; }
  int size() const { return size_; }

  // Runs one collective, and returns when this rank's outputs are written and nobody reads its
  // inputs any more. Throws a ValueError on every rank if the calls do not match, and for nothing
  // else, and another Error if a rank is gone. If anything else goes wrong, this rank has left.
  virtual void run(const Call& call, std::span<const void* const> inputs,
                   std::span<void* const> outputs) = 0;

  // Takes this rank out of all further operations because of `error`: what it issues fails, and the
  // others' operations that need it fail with an error that names it, as soon as they can be told.
  // Only the first call counts.
  virtual void leave(const std::exception_ptr& error) noexcept = 0;

  // Does the part of `leave` that any thread may do at any time, also while an operation runs,
  // which may be waiting for a rank that waits for this one.
  virtual void break_off(const std::exception_ptr& /*error*/) noexcept {}

  // Runs `body`, a step of an operation that no other rank sees fail, or leaves if it throws: else
  // the others would wait for this rank for ever, or meet its next operation in this one's place.
  template <class Body>
  void or_leave(const Body& body) {
    try {
      body();
    } catch (...) {
      leave(std::current_exception());
      throw;
    }
  }

  // The error that the ranks' calls do not match, if another rank has told this one; else null.
  // Asked when an operation fails after the watchdog has found a fault, whose cause this may be.
  virtual std::exception_ptr mismatch() noexcept { return nullptr; }

  // After `run` or `run_on` has thrown: true if that call's inputs and outputs may still be read or
  // written, nobody knows for how long. The caller then never frees them.
  virtual bool buffers_in_flight() const { return false; }

  // Starts a message and returns. `data` is only read if the rank sends it. Any thread calls `done`
  // when the message has been taken or has failed, perhaps before the return. Messages between two
  // ranks with one tag are taken in order. With a stream, that of `stream_for`, the memory is on
  // its GPU, the copy is work of the stream, and `done` is called when it is issued.
  virtual void start(const Message& message, void* data, Done done, const Stream* stream) = 0;
  // Whether a rank may send to itself.
  virtual bool reaches_itself() const { return true; }
  // Polls messages, and collectives of `run_on`, that do not progress by themselves. True while
  // there are any.
  virtual bool progress() { return false; }
  // An operation that polls for other ranks calls `poll` as long as it waits: they may be waiting
  // for messages of this rank. Called once, before all operations.
  virtual void call_in_waits(std::function<void()> /*poll*/) {}

  // The stream on which this carrier runs operations on memory of this GPU, always the same one;
  // none if it takes them in host memory.
  virtual std::optional<Stream> stream_for(Device) { return {}; }
  // Whether other ranks' GPUs read the inputs of `run_on` and write its outputs where they are. The
  // group then gives it copies of memory that was lent, which may be opened to no other GPU.
  virtual bool works_across_gpus() const { return false; }
  // As `run`, but issues the collective as work of `stream` and returns. If it fails later,
  // `failed` is called at most once, within a later call of the carrier, such as `progress`.
  virtual void run_on(const Stream& stream, const Call& call,
                      std::span<const void* const> /*inputs*/, std::span<void* const> /*outputs*/,
                      const Done& /*failed*/) {
    lockstep::detail::fail<DeviceError>(call, " on ", stream.device(),
                                        ": the carrier takes host memory only");
  }

  // A carrier among some of the ranks, in the order given, which is the same on all ranks; null on
  // a rank that is not among them. All ranks call it.
  virtual std::unique_ptr<Carrier> split(std::span<const int> members) = 0;

 private:
  const int rank_;
  const int size_;
};

}  // namespace lockstep::distributed::detail
