// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/distributed/group/call.hpp>
#include <lockstep/non_copyable.hpp>

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::distributed {

// Where a rank is in the sequence of a group's collectives; see Watchdog. The thread that runs the
// collectives writes it, which costs four plain stores each, and the watchdog's thread reads it.
//
// **Threads and exceptions.** `enter` and `leave` are called by one thread at a time, `snapshot` by
// any. Nothing throws.
class Progress : lockstep::detail::NonCopyable {
 public:
  // The rank is in collective `number`, counted from 1, or has left it. 0: it has been in none.
  struct Snapshot {
    std::uint64_t number = 0;
    bool inside = false;
    detail::Call call{};  // if inside

    friend bool operator==(const Snapshot&, const Snapshot&) = default;
  };

  // The rank has come to a collective, in which it waits for others.
  void enter(const detail::Call& call) noexcept;
  // The rank has left it, whether that went well or not.
  void leave() noexcept {
    state_.store(state_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }

  // Nothing if collectives follow one another too fast to read one of them whole.
  std::optional<Snapshot> snapshot() const noexcept;

 private:
  static std::uint64_t pack(const detail::Call& call);
  static detail::Call unpack(std::uint64_t what, std::uint64_t count);

  std::atomic<std::uint64_t> state_{0};  // odd within a collective; two steps each
  std::atomic<std::uint64_t> count_{0};
  std::atomic<std::uint64_t> what_{0};
};

// Marks a collective for as long as it lives. Does nothing if `progress` is null: nobody watches.
class InCollective : lockstep::detail::NonCopyable {
 public:
  InCollective(Progress* progress, const detail::Call& call) noexcept : progress_(progress) {
    if (progress_) progress_->enter(call);
  }
  ~InCollective();

 private:
  Progress* progress_;
};

namespace detail {

// "collective #17, all_reduce(sum) of 4 x f32"
std::string describe(std::uint64_t number, const std::string& call);

// " after collective #17": how far a rank that has ended had come.
inline std::string after(std::uint64_t number) {
  return number == 0 ? " without any collective" : " after collective #" + std::to_string(number);
}

}  // namespace detail

}  // namespace lockstep::distributed

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/watchdog/impl/watchdog_progress.ipp>
#endif
