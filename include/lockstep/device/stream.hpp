// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/non_copyable.hpp>

#include <memory>
#include <utility>

namespace lockstep {

namespace detail {

class StreamState;

// A point in a stream's work. Immutable, so any thread may ask it.
class EventState : NonCopyable {
 public:
  virtual ~EventState() = default;

  virtual bool query() const = 0;
  virtual void synchronize() const = 0;
  // As `synchronize`, for a caller that reads no results and only gives memory back: that the work
  // has failed is no error to it, and is told to others as if nobody had waited.
  virtual void wait_for_end() const = 0;
  // True if work issued to the stream from now on comes after this event without a wait.
  virtual bool precedes_new_work_of(const StreamState& stream) const = 0;
};
using EventPtr = std::shared_ptr<const EventState>;

// What `ask()` says of such points, or of streams; false where it throws, as for a GPU that has
// failed: nobody knows then.
template <class Ask>
bool is_known(const Ask& ask) noexcept {
  try {
    return ask();
  } catch (...) {
    return false;
  }
}

// What a backend keeps for a stream. Made once and never destroyed, so a handle needs no owner.
// All members may be called from any thread.
class StreamState : NonCopyable {
 public:
  explicit StreamState(Device device) : device_(device) {}
  virtual ~StreamState() = default;

  Device device() const { return device_; }
  // True if all that was issued and all that the stream was told to wait for has ended: then there
  // is nothing to order against.
  virtual bool idle() const = 0;
  // True if that is known without asking a driver, and no failure is left that a wait would throw.
  // (A GPU's driver takes longer to answer than the wait costs that this may spare.)
  virtual bool known_idle() const { return idle(); }
  virtual EventPtr record() = 0;
  virtual void wait(const EventPtr& event) = 0;
  virtual void synchronize() = 0;

 private:
  const Device device_;
};

}  // namespace detail

// A point in the work of a stream, recorded by `Stream::record_event`.
//
// A default-constructed Event has always happened.
//
// **Torch counterpart.** torch.cuda.Event.
// **Threads and exceptions.** A value; copies name the same point. Any thread may ask or wait.
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

// An ordered queue of work on one device: what is issued to it runs in that order. Work of
// different streams is unordered unless one waits for the other.
//
// A handle: copying is free, and the queue behind it lives until the process ends.
//
// **Torch counterpart.** torch.cuda.Stream.
// **Devices and streams.** A host device's compute stream runs its work at once, in the thread that
// issues it; its copy stream is really asynchronous. See backend/streams.hpp for where streams
// come from.
// **Threads and exceptions.** Any thread may issue to any stream; work issued by two threads
// without an order between them has none. The exception of an asynchronous operation is thrown
// once, by what comes first: `synchronize` of its stream, or a wait for it, of the host or of
// another stream's next operation. Where several have failed by then it is the first one's. Waits
// for events that were recorded before throw it again. What a stream waits for throws in the thread
// that issues its next operation.
class Stream {
 public:
  explicit Stream(detail::StreamState& state) : state_(&state) {}

  Device device() const { return state_->device(); }

  // Everything issued to `other` so far happens before everything issued to this stream from now
  // on. The caller is not blocked: the stream keeps the wait, and its next operation waits.
  void wait_stream(const Stream& other) const {
    if (other.state_ != state_ && !other.state_->known_idle()) state_->wait(other.state_->record());
  }
  // The same for all that the event stands for.
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
