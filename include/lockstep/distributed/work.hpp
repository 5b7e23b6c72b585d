// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>

namespace lockstep::distributed {

namespace detail {

// What the thread that runs an operation shares with those that wait for it. `gpu` and `issued` are
// written before `ended`, whose release publishes them together with the results, and only read
// after it.
struct WorkState {
  enum : std::uint32_t { kRunning, kSucceeded, kFailed };

  // From kSucceeded it may still go to kFailed, with the error of a GPU.
  std::atomic<std::uint32_t> ended{kRunning};
  // The GPU that has the operation's last work, if there is one, and the point that users of the
  // result wait for.
  std::optional<Device> gpu;
  Event issued;
};

class Completion;

}  // namespace detail

// nvcc takes `work = group.all_reduce(tensor)` for a call whose result is dropped.
#if defined(__CUDACC__)
#define LOCKSTEP_TO_BE_WAITED_FOR
#else
#define LOCKSTEP_TO_BE_WAITED_FOR                                                          \
  [[nodiscard(                                                                             \
      "the operation runs in the background: wait() before its tensors are used, or call " \
      "lockstep::distributed::all_reduce and the like, which wait; cast to void to drop it")]]
#endif

// An operation that was issued: a handle, to wait for its end and to ask for its error.
//
// The operation takes place whether somebody waits or not. Until it has ended, its tensors may be
// neither written nor, where it writes them, read; so compilers warn of one that is dropped. Where
// that is meant, it is cast to void; functions that wait are in collectives.hpp.
//
// **Torch counterpart.** torch.distributed.Work.
// **Devices and streams.** After `wait`, the results may be used by the waiting thread's current
// stream of their device. On a GPU the operation itself need not have ended then: the host is
// blocked until it is issued, and the stream waits for its end.
// **Threads and exceptions.** Any threads may ask and wait, as often as they like: each `wait`
// throws the operation's exception, if it has one. In a forked child it is an Error to wait for
// what the parent has not ended: the child would wait for ever.
class LOCKSTEP_TO_BE_WAITED_FOR Work {
 public:
  // One that has ended without an error.
  Work() = default;

  // Blocks until the operation has ended, and throws what it threw. For GPUs the results may still
  // be on their way then; the current stream waits for them.
  void wait() const;

  // True once the operation has ended, on a GPU too, with an error or without one. Never blocks.
  bool is_completed() const;

  // What the operation threw; null if it has not ended, or has ended well.
  std::exception_ptr exception() const;

 private:
  friend class detail::Completion;

  std::shared_ptr<detail::WorkState> state_;
  std::shared_ptr<std::exception_ptr> error_;  // read after the end
};
#undef LOCKSTEP_TO_BE_WAITED_FOR

namespace detail {

// The side of the thread that runs an operation. Once it has finished, only handles hold the error,
// so that the exception is destroyed on the side of those who wait, whichever lets go last.
class Completion {
 public:
  // Makes `work` the handle on it.
  explicit Completion(Work& work);

  WorkState& state() const { return *state_; }

  void finish(std::exception_ptr error) const noexcept;

  // Marks an operation that has finished well as failed, because of an error of its GPU after that.
  // Does nothing if it has not finished well, since `finish` tells that. Called once at most, by
  // the thread that calls `finish`.
  void fail(std::exception_ptr error) const noexcept;

 private:
  std::shared_ptr<WorkState> state_;
  std::weak_ptr<std::exception_ptr> error_;
};

}  // namespace detail

}  // namespace lockstep::distributed

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/impl/work.ipp>
#endif
