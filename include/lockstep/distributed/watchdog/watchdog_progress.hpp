// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/group/call.hpp>
#include <lockstep/distributed/reduce_op.hpp>
#include <lockstep/error.hpp>
#include <lockstep/non_copyable.hpp>
#include <lockstep/tensor/dtype.hpp>

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::distributed {

// Where a rank is in the sequence of a group's collectives; see Watchdog. The thread that runs the
// collectives writes it, with four plain stores each, and the watchdog's thread reads it.
//
// **Threads and exceptions.** `enter` and `leave` are called by one thread at a time, `snapshot` by
// any. Nothing throws.
class Progress : lockstep::detail::NonCopyable {
 public:
  // The rank is in collective `number`, counted from 1, or has left it; 0 before its first one.
  struct Snapshot {
    std::uint64_t number = 0;
    bool inside = false;
    detail::Call call{};  // if inside

    friend bool operator==(const Snapshot&, const Snapshot&) = default;
  };

  // The rank has entered a collective, in which it waits for others.
  void enter(const detail::Call& call) noexcept {
    // Released, so that a reader that acquires a later collective's value here also finds that
    // `state_` has changed, and reads again.
    count_.store(call.count, std::memory_order_release);
    what_.store(pack(call), std::memory_order_release);
    state_.store(state_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  // The rank has left it, whether that went well or not.
  void leave() noexcept {
    state_.store(state_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }

  // Nothing if collectives follow one another too fast for a consistent read.
  std::optional<Snapshot> snapshot() const noexcept {
    constexpr int kTries = 16;
    for (int i = 0; i < kTries; ++i) {
      const std::uint64_t state = state_.load(std::memory_order_acquire);
      const std::uint64_t count = count_.load(std::memory_order_acquire);
      const std::uint64_t what = what_.load(std::memory_order_acquire);
      if (state_.load(std::memory_order_relaxed) != state) continue;
      if (state % 2 == 0) return Snapshot{state / 2};
      return Snapshot{state / 2 + 1, true, unpack(what, count)};
    }
    return {};
  }

 private:
  static std::uint64_t pack(const detail::Call& call) {
    return static_cast<std::uint64_t>(call.collective) |
           static_cast<std::uint64_t>(call.dtype) << 8 | static_cast<std::uint64_t>(call.op) << 16 |
           std::uint64_t{static_cast<std::uint32_t>(call.root)} << 32;
  }
  static detail::Call unpack(std::uint64_t what, std::uint64_t count) {
    return {static_cast<detail::Collective>(what & 0xFF), static_cast<Dtype>(what >> 8 & 0xFF),
            static_cast<ReduceOp>(what >> 16 & 0xFF), static_cast<int>(what >> 32), count};
  }

  std::atomic<std::uint64_t> state_{0};  // odd within a collective; two steps each
  std::atomic<std::uint64_t> count_{0};
  std::atomic<std::uint64_t> what_{0};
};

// Marks a collective for as long as it lives. Does nothing if `progress` is null.
class InCollective : lockstep::detail::NonCopyable {
 public:
  InCollective(Progress* progress, const detail::Call& call) noexcept : progress_(progress) {
    if (progress_) progress_->enter(call);
  }
  ~InCollective() {
    if (progress_) progress_->leave();
  }

 private:
  Progress* progress_;
};

namespace detail {

// "collective #17, all_reduce(sum) of 4 x f32"
inline std::string describe(std::uint64_t number, const std::string& call) {
  return lockstep::detail::str("collective #", number, ", ", call);
}

// " after collective #17": the last one of a rank that has ended.
inline std::string after(std::uint64_t number) {
  return number == 0 ? " without any collective" : " after collective #" + std::to_string(number);
}

}  // namespace detail

}  // namespace lockstep::distributed
