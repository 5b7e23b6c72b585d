// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/non_copyable.hpp>

#include <atomic>
#include <memory>

namespace lockstep::detail {

// Per-thread state of another library, such as its own grad mode, which a replica takes over from
// its caller as it does lockstep's. The library's adapter makes one of these, never destroyed,
// before the program's threads call lockstep.
//
// `capture` returns the calling thread's state. `enter` makes that the calling thread's state until
// what it returns is destroyed there. Both may throw.
class ForeignThreadState : NonCopyable {
 public:
  using Handle = std::shared_ptr<const void>;

  ForeignThreadState(Handle (*capturing)(), Handle (*entering)(const Handle& captured))
      : capture(capturing), enter(entering), next_(first_.load(std::memory_order_relaxed)) {
    while (!first_.compare_exchange_weak(next_, this, std::memory_order_release)) {
    }
  }

  static const ForeignThreadState* first() { return first_.load(std::memory_order_acquire); }
  const ForeignThreadState* next() const { return next_; }

  Handle (*const capture)();
  Handle (*const enter)(const Handle& captured);

 private:
  const ForeignThreadState* next_;

  // The newest one, which links to the others; usually null.
  static inline constinit std::atomic<const ForeignThreadState*> first_{nullptr};
};

}  // namespace lockstep::detail
