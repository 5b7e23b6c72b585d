// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/non_copyable.hpp>

#include <memory>
#include <utility>

namespace lockstep {

namespace detail {

class StreamState;

// A point in a stream's work. Immutable, so any thread may use it.
class EventState : NonCopyable {
 public:
  virtual ~EventState() = default;

  virtual bool query() const = 0;
  virtual void synchronize() const = 0;
  // As `synchronize`, for a caller that reads no results and only returns memory. It ignores that
  // work has failed; others are told as if nobody had waited.
  virtual void wait_for_end() const = 0;
  // True if work issued to the stream from now on comes after this event without a wait.
  virtual bool precedes_new_work_of(const StreamState& stream) const = 0;
};
using EventPtr = std::shared_ptr<const EventState>;

// What `ask()` returns about such points or streams; false if it throws, as for a failed GPU.
template <class Ask>
bool is_known(const Ask& ask) noexcept {
  try {
    return ask();
  } catch (...) {
    return false;
  }
}

// What a backend keeps for a stream. Made once and never destroyed, so handles need no owner. Any
// thread may call any member.
class StreamState : NonCopyable {
 public:
  explicit StreamState(Device device) : device_(device) {}
  virtual ~StreamState() = default;

  Device device() const { return device_; }
  // True if everything that was issued, or that the stream was told to wait for, has ended.
  virtual bool idle() const = 0;
  // True if this is known without asking a driver (which takes longer than the wait it may save)
  // and no failure is left for a wait to throw.
  virtual bool known_idle() const { return idle(); }
  virtual EventPtr record() = 0;
  virtual void wait(const EventPtr& event) = 0;
  virtual void synchronize() = 0;

 private:
  const Device device_;
};

}  // namespace detail

// A point in a stream's work, recorded by `Stream::record_event`. A default-constructed Event has
// always happened.
//
// **Torch counterpart.** torch.cuda.Event.
// **Threads and exceptions.** A value; copies name the same point. Any thread may query or wait.
class Event {
 public:
  Event() = default;
  explicit Event(detail::EventPtr state) : state_(std::move(state)) {}

  // True once all work issued before the event was recorded has ended.
  bool query() const { return !state_ || state_->query(); }
  // Blocks the calling thread until then.
  void synchronize() const {
    if (state_) state_->synchronize();
  }
  const detail::EventPtr& state() const { return state_; }

 private:
  detail::EventPtr state_;
};

// An ordered queue of work on one device. Work issued to a stream runs in that order; work of
// different streams is unordered unless one waits for the other.
//
// A Stream is a handle: copies are free, and the queue lives until the process ends.
//
// **Torch counterpart.** torch.cuda.Stream.
// **Devices and streams.** A host device's compute stream runs its work at once, in the issuing
// thread; its copy stream is asynchronous. backend/streams.hpp gives you streams.
// **Threads and exceptions.** Any thread may issue to any stream; two threads must order their work
// themselves. An asynchronous operation's exception is thrown once, by the first of these:
// `synchronize` of its stream, or a wait for it by the host or by another stream's next operation
// (in the thread that issues that). If several operations have failed by then, the first one's is
// thrown. Waits for events recorded earlier throw it again.
class Stream {
 public:
  explicit Stream(detail::StreamState& state) : state_(&state) {}

  Device device() const { return state_->device(); }

  // Orders everything issued to this stream from now on after everything issued to `other` so far.
  // Does not block the caller: the stream's next operation waits.
  void wait_stream(const Stream& other) const {
    if (other.state_ != state_ && !other.state_->known_idle()) state_->wait(other.state_->record());
  }
  // The same for everything before the event.
  void wait_event(const Event& event) const {
    const detail::EventPtr& state = event.state();
    if (state && !state->precedes_new_work_of(*state_)) state_->wait(state);
  }
  // The end of everything issued to this stream so far.
  Event record_event() const { return state_->known_idle() ? Event() : Event(state_->record()); }
  // True if everything issued so far has ended.
  bool query() const { return state_->idle(); }
  // Blocks the calling thread until everything issued so far has ended.
  void synchronize() const { state_->synchronize(); }

  detail::StreamState& state() const { return *state_; }
  friend bool operator==(const Stream&, const Stream&) = default;

 private:
  detail::StreamState* state_;
};

}  // namespace lockstep
