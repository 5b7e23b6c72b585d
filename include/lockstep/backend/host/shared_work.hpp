// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/threads/park.hpp>
#include <lockstep/backend/threads/shared_core.hpp>
#include <lockstep/backend/threads/spin_wait.hpp>
#include <lockstep/device/cores.hpp>
#include <lockstep/function_ref.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace lockstep::detail {

// Work as its owner describes it: `run(i)` for each i below `count`, which must neither throw nor
// wait for another thread.
struct Pieces {
  FunctionRef<void(std::size_t index)> run;
  std::uint32_t count = 0;
};

// Work divided into pieces, which its owner does together with idle threads.
//
// Each thread takes pieces from one of two ends: first from that end's half, then from the other.
// So the word that tells which pieces are left does not move between cores with every piece, and a
// thread that keeps to its end finds its data in its caches when the same work comes again. Nobody
// waits for a helper that has not come: the owner does what is left itself.
//
// Everything that a helper at the back reads before its first piece is on one cache line, since
// each further line would have to come from the owner's core.
//
// Threads: the owner calls `open` and `close`. Any thread may try to `join` at any time. Objects
// live until the process ends: a helper wakes the owner after its last piece, and a thread may come
// to a work closed long ago.
class alignas(64) SharedWork {
 public:
  enum class End { front, back };

  void open(const Pieces& pieces) {
    pieces_ = pieces;
    const std::uint32_t middle = pieces.count - pieces.count / 2;
    front_.store(range(0, middle), std::memory_order_relaxed);
    back_.store(range(middle, pieces.count), std::memory_order_relaxed);
    helpers_.store(kOpen, std::memory_order_release);
  }
  // Waits for the pieces that helpers are still running, and then sees what they wrote.
  void close() {
    if (helpers_.fetch_and(~kOpen, std::memory_order_acquire) == kOpen) return;
    const auto ended = [this] { return helpers_.load(std::memory_order_acquire) == 0; };
    if (callers_core.yield_until(ended) || spin_until(ended)) return;
    core_of_waker_.store(-1, std::memory_order_relaxed);  // before a helper sees a parked owner
    while (const std::uint32_t helpers = helpers_.load(std::memory_order_acquire)) {
      park_counted(helpers_, helpers);
    }
    callers_core.woken_from(core_of_waker_.load(std::memory_order_relaxed));
  }

  // A hint: false means that all pieces are taken.
  bool has_pieces() const { return has_untaken(back_) || has_untaken(front_); }

  void run_from(End end) {
    run_while(end, [] { return true; });
  }

  // A helper calls `join`, which returns false if the work is closed or `most` have joined, and
  // then `help`, which returns once all pieces are taken or, between pieces, once `go_on()` is
  // false. A thread that has joined sees what the owner did before `open`.
  std::uint32_t helpers() const { return helpers_.load(std::memory_order_relaxed) / kHelper; }
  bool join(std::uint32_t most) {
    std::uint32_t value = helpers_.load(std::memory_order_relaxed);
    while ((value & kOpen) != 0 && value / kHelper < most) {
      if (helpers_.compare_exchange_weak(value, value + kHelper, std::memory_order_acquire,
                                         std::memory_order_relaxed)) {
        return true;
      }
    }
    return false;
  }
  template <class GoOn>
  void help(End end, GoOn go_on) {
    run_while(end, go_on);
    if (helpers_.fetch_sub(kHelper, std::memory_order_release) != kHelper) return;
    if (!any_parked(helpers_)) return;
    core_of_waker_.store(current_core(), std::memory_order_relaxed);
    unpark(helpers_, 1);
  }

 private:
  // The pieces left in a half: a range with its front in the low 32 bits. Changing it orders
  // nothing: `open` publishes what a piece reads, `helpers_` what it writes.
  using Half = std::atomic<std::uint64_t>;

  static std::uint64_t range(std::uint64_t front, std::uint64_t back) { return back << 32 | front; }
  static std::uint32_t front_of(std::uint64_t range) { return static_cast<std::uint32_t>(range); }
  static std::uint32_t back_of(std::uint64_t range) {
    return static_cast<std::uint32_t>(range >> 32);
  }
  static bool has_untaken(const Half& half) {
    const std::uint64_t untaken = half.load(std::memory_order_relaxed);
    return front_of(untaken) < back_of(untaken);
  }

  template <class GoOn>
  void run_while(End end, GoOn go_on) {
    const Pieces pieces = pieces_;
    run_half(pieces, end, end == End::front ? front_ : back_, go_on);
    run_half(pieces, end, end == End::front ? back_ : front_, go_on);
  }

  template <class GoOn>
  static void run_half(const Pieces& pieces, End end, Half& half, GoOn go_on) noexcept {
    std::uint64_t untaken = half.load(std::memory_order_relaxed);
    while (front_of(untaken) < back_of(untaken) && go_on()) {
      const std::uint64_t rest = end == End::front
                                     ? range(front_of(untaken) + 1U, back_of(untaken))
                                     : range(front_of(untaken), back_of(untaken) - 1U);
      if (!half.compare_exchange_weak(untaken, rest, std::memory_order_relaxed)) continue;
      pieces.run(end == End::front ? front_of(untaken) : back_of(rest));
      untaken = half.load(std::memory_order_relaxed);
    }
  }

  static constexpr std::uint32_t kOpen = 1;
  static constexpr std::uint32_t kHelper = 2;

  Half front_{0};

  alignas(64) Half back_{0};
  Pieces pieces_;  // written by `open`, read by threads that have joined
  // kHelper for each helper that has joined and not left, plus kOpen while the work is open. A
  // helper's decrement (release) is its last access except for the wake-up, and `close` reads it
  // (acquire). All changes from `open` to the last decrement are read-modify-writes, so one release
  // sequence.
  std::atomic<std::uint32_t> helpers_{0};
  // The core of the helper that last woke an owner. A hint: another owner may read it by then.
  std::atomic<int> core_of_waker_{-1};
};

}  // namespace lockstep::detail
