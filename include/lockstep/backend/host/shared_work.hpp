// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/park.hpp>
#include <lockstep/backend/spin_wait.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace lockstep::detail {

// A piece of work as its owner describes it: `run(context, i)` for each i below `count`, which
// neither throws nor waits for another thread.
struct Pieces {
  void (*run)(void* context, std::size_t index) noexcept = nullptr;
  void* context = nullptr;
  std::uint32_t count = 0;
};

// Work divided into pieces, which its owner does together with whatever threads find time for it.
//
// Whoever takes part takes pieces from one of the two ends. Where a thread keeps to the same end,
// its core finds in its caches what it had there before when the same work comes again. Nobody
// waits for a helper that has not come: the owner does what is left itself.
//
// Threads: `open` and `close` are the owner's. `join` and `open` happen under a lock of whoever
// keeps the list of open works, and nobody joins once the work has left that list; `close` comes
// after that. Objects live until the process ends, because a helper notifies after its last piece.
class SharedWork {
 public:
  enum class End { front, back };

  void open(const Pieces& pieces) {
    pieces_ = pieces;
    left_.store(range(0, pieces.count), std::memory_order_relaxed);
  }
  // Waits for the pieces that helpers still have in hand; what they wrote is visible then.
  void close() {
    spin_then_park(helpers_, [](std::uint32_t helpers) { return helpers == 0; });
  }

  // A hint: false means that nothing is left to take.
  bool has_pieces() const {
    const std::uint64_t left = left_.load(std::memory_order_relaxed);
    return front_of(left) < back_of(left);
  }

  void run_from(End end) {
    run_while(end, [] { return true; });
  }

  // For helpers: `join`, then `help`, which leaves again once no piece is left or, between two
  // pieces, as soon as `go_on()` is false.
  std::uint32_t helpers() const { return helpers_.load(std::memory_order_relaxed); }
  void join() { helpers_.fetch_add(1, std::memory_order_relaxed); }
  template <class GoOn>
  void help(End end, GoOn go_on) {
    run_while(end, go_on);
    if (helpers_.fetch_sub(1, std::memory_order_release) == 1) unpark_listed(helpers_, 1);
  }

 private:
  static std::uint64_t range(std::uint64_t front, std::uint64_t back) { return back << 32 | front; }
  static std::uint32_t front_of(std::uint64_t left) { return static_cast<std::uint32_t>(left); }
  static std::uint32_t back_of(std::uint64_t left) {
    return static_cast<std::uint32_t>(left >> 32);
  }

  template <class GoOn>
  void run_while(End end, GoOn go_on) {
    std::uint64_t left = left_.load(std::memory_order_relaxed);
    while (front_of(left) < back_of(left) && go_on()) {
      const std::uint64_t rest = end == End::front ? range(front_of(left) + 1U, back_of(left))
                                                   : range(front_of(left), back_of(left) - 1U);
      if (!left_.compare_exchange_weak(left, rest, std::memory_order_relaxed)) continue;
      pieces_.run(pieces_.context, end == End::front ? front_of(left) : back_of(rest));
      left = left_.load(std::memory_order_relaxed);
    }
  }

  Pieces pieces_;  // written by `open`, published by the lock under which a helper joins
  // The pieces nobody has taken: a range, its front in the low half. It orders nothing: what a
  // piece reads was published by the lock, what it writes is by `helpers_`.
  alignas(64) std::atomic<std::uint64_t> left_{0};
  // How many helpers are at it. Incremented under the lock, decremented with release as a helper's
  // last access but the notification, read with acquire by `close`.
  alignas(64) std::atomic<std::uint32_t> helpers_{0};
};

}  // namespace lockstep::detail
