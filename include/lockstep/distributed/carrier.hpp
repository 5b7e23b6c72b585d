// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/distributed/call.hpp>
#include <lockstep/tensor/dtype.hpp>

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>

namespace lockstep::distributed::detail {

// A message from one rank to another.
struct Message {
  int peer = 0;  // the other rank
  int tag = 0;
  Dtype dtype = Dtype::u8;
  std::size_t count = 0;

  std::size_t bytes() const { return count * element_size(dtype); }
};

// Called once when a message has been taken or has failed; throws nothing.
using Done = std::function<void(std::exception_ptr)>;

// The seam between process groups and what connects the ranks: one rank's side of it. It moves and
// combines bytes and knows nothing of tensors: bytes in host memory, and on GPUs where it has a
// stream for them. What is on other GPUs is copied to host memory before it gets it.
//
// What a collective reads and writes, where n is the number of ranks and a part is `call.count`
// elements:
//   all_reduce      inputs: 1 part               outputs: 1 part, may be the input
//   broadcast       inputs: 1 part at the root   outputs: 1 part at the others
//   reduce          inputs: 1 part               outputs: 1 part at the root, may be the input
//   all_gather      inputs: 1 part               outputs: n parts, one of them may be the input
//   reduce_scatter  inputs: n parts              outputs: 1 part, may be the own part of the inputs
//   scatter         inputs: n parts at the root  outputs: 1 part
//   gather          inputs: 1 part               outputs: n parts at the root
// Sums are taken in the order of the ranks, half precision in f32 and rounded once: the same
// numbers give the same bits whatever carries them, except for NCCL, which has an order of its own.
//
// Threads: all members but the constructor, `rank` and `size` are called by one thread at a time,
// in the same order on all ranks.
class Carrier {
 public:
  Carrier(int rank, int size) : rank_(rank), size_(size) {}
  Carrier(const Carrier&) = delete;
  Carrier& operator=(const Carrier&) = delete;
  virtual ~Carrier() = default;

  int rank() const { return rank_; }
  int size() const { return size_; }

  // Runs one collective and returns when this rank's outputs are there and its inputs are no longer
  // read. An Error on every rank where the calls do not match, or where a rank is gone. Where
  // something else goes wrong the rank leaves.
  virtual void run(const Call& call, std::span<const void* const> inputs,
                   std::span<void* const> outputs) = 0;

  // This rank takes part in no operation any more, because of `error`: what it issues fails, and so
  // do the others' operations that need it, with an error that names it, as soon as they can be
  // told. After the first call it does nothing.
  virtual void leave(const std::exception_ptr& error) noexcept = 0;

  // As much of `leave` as may come from any thread and at any time, also while an operation runs:
  // that one may wait for a rank which waits for this one.
  virtual void break_off(const std::exception_ptr& /*error*/) noexcept {}

  // Runs `body`, which concerns this rank alone: where it throws, the others would wait for ever,
  // or in step with something else.
  template <class Body>
  void alone(const Body& body) {
    try {
      body();
    } catch (...) {
      leave(std::current_exception());
      throw;
    }
  }

  // Asked when `run` or `run_on` has thrown: whether what that call was given may still be read or
  // written, for all that is known for ever. That memory is never freed then.
  virtual bool may_use_memory() const { return false; }

  // Start a message and return; `done` is called when it has been taken, by any thread, perhaps
  // before the return. Messages between two ranks with one tag are taken in order.
  virtual void send(const Message& message, const void* data, Done done) = 0;
  virtual void receive(const Message& message, void* data, Done done) = 0;
  // Whether a rank may send to itself.
  virtual bool reaches_itself() const { return true; }
  // Where messages do not progress by themselves: sees after them. True while there are any.
  virtual bool progress() { return false; }

  // The stream for operations on memory of this GPU, always the same one; none where they are run
  // on host memory.
  virtual std::optional<Stream> stream_for(Device) { return {}; }
  // As `run`, as work of that stream: returns when it is issued. What goes wrong after that is told
  // to `failed`, at most once, by the thread that calls the carrier; `progress` sees after it.
  LOCKSTEP_INLINE virtual void run_on(const Stream& stream, const Call& call,
                                      std::span<const void* const>, std::span<void* const>,
                                      const Done& failed);
  // As `send` and `receive`: `done` is called when the copy is issued, as work of the stream.
  LOCKSTEP_INLINE virtual void send_on(const Stream& stream, const Message&, const void*, Done);
  LOCKSTEP_INLINE virtual void receive_on(const Stream& stream, const Message&, void*, Done);

  // A carrier among some of the ranks, in the order given, which is the same on all ranks; null on
  // a rank that is not among them. All ranks call it.
  virtual std::unique_ptr<Carrier> split(std::span<const int> members) = 0;

 private:
  [[noreturn]] static void fail_message(const Stream& stream);

  const int rank_;
  const int size_;
};

}  // namespace lockstep::distributed::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/carrier.ipp>
#endif
