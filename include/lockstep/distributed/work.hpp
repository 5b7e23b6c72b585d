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

// What the thread that runs an operation shares with those that wait for it. The release of `ended`
// publishes `gpu`, `issued` and the results; `gpu` and `issued` are only read after it.
struct WorkState {
  enum : std::uint32_t { kRunning, kSucceeded, kFailed };

  // May still go from kSucceeded to kFailed, if the GPU fails later.
  std::atomic<std::uint32_t> ended{kRunning};
  // The GPU that has the operation's last work, if any, and the point that users of the result wait
  // for.
  std::optional<Device> gpu;
  Event issued;
};

class Completion;

}  // namespace detail

// nvcc mistakes `work = group.all_reduce(tensor)` for a dropped result, and would warn.
#if defined(__CUDACC__)
#define LOCKSTEP_TO_BE_WAITED_FOR
#else
#define LOCKSTEP_TO_BE_WAITED_FOR                                                          \
  [[nodiscard(                                                                             \
      "the operation runs in the background: wait() before its tensors are used, or call " \
      "lockstep::distributed::all_reduce and the like, which wait; cast to void to drop it")]]
#endif

// A handle on an operation that was issued, to wait for its end and to ask for its error.
//
// The operation runs whether anybody waits or not. Until it has ended, nobody may write its
// tensors, or read those that it writes. Compilers therefore warn of a Work that is dropped; cast
// it to void where that is meant. The functions in collectives.hpp wait themselves.
//
// **Torch counterpart.** torch.distributed.Work.
// **Devices and streams.** After `wait`, the waiting thread's current stream of the results' device
// may use them. On a GPU the operation itself may still be running: the host is blocked until it is
// issued, and the stream waits for its end.
// **Threads and exceptions.** Any thread may call the members, any number of times; each `wait`
// throws the operation's exception, if it has one. In a forked child, waiting for what the parent
// has not ended is an Error.
class LOCKSTEP_TO_BE_WAITED_FOR Work {
 public:
  // One that has ended without an error.
  Work() = default;

  // Blocks until the operation has ended, or on a GPU is issued, and throws its exception.
  void wait() const;

  // True once the operation has ended, on a GPU too, with or without an error. Never blocks.
  bool is_completed() const;

  // The operation's exception; null if it has not ended or has succeeded.
  std::exception_ptr exception() const;

 private:
  friend class detail::Completion;

  std::shared_ptr<detail::WorkState> state_;
  std::shared_ptr<std::exception_ptr> error_;  // only read after the end
};
#undef LOCKSTEP_TO_BE_WAITED_FOR

namespace detail {

// The side of a Work that runs the operation. Once it has finished, only the handles hold the
// error, so the exception is destroyed by those who wait, whichever lets go last.
class Completion {
 public:
  // Makes `work` the handle on this operation.
  explicit Completion(Work& work);

  WorkState& state() const { return *state_; }

  void finish(std::exception_ptr error) const noexcept;

  // Marks an operation that has succeeded as failed, because its GPU has failed since. Does nothing
  // to one that `finish` has marked as failed. Called at most once, by the thread that calls
  // `finish`.
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
