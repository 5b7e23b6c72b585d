// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/threads/park.hpp>
#include <lockstep/backend/threads/spin_wait.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace lockstep::distributed::detail {

// Work that the ranks of a world of threads share after a meeting. It is divided into pieces, and
// each rank takes the next free one. So the last rank to arrive, which is running already, need not
// wait for the others to wake up: they take what it has left.
//
// Threads: one rank calls `reset` before the meeting, after all ranks have returned from the last
// `run`; every rank calls `run` after it. When that returns, what each piece wrote is visible to
// all ranks.
class ClaimedPieces {
 public:
  void reset() noexcept {
    claimed_.store(0, std::memory_order_relaxed);
    ended_.store(0, std::memory_order_relaxed);
  }

  // Calls piece(i) for each i below `count` that no other rank has taken, and returns when all
  // pieces have ended. `count` is at least 1 and the same on all ranks. A piece neither throws nor
  // waits for another.
  template <class Piece>
  void run(std::uint32_t count, const Piece& piece) noexcept {
    // Relaxed is enough: the meeting has published what pieces read.
    for (std::uint32_t i = claim(); i < count; i = claim()) {
      piece(static_cast<std::size_t>(i));
      if (ended_.fetch_add(1, std::memory_order_acq_rel) + 1 == count)
        lockstep::detail::unpark_counted(ended_);
    }
    lockstep::detail::spin_then_park(ended_,
                                     [count](std::uint32_t ended) { return ended == count; });
  }

 private:
  std::uint32_t claim() noexcept { return claimed_.fetch_add(1, std::memory_order_relaxed); }

  alignas(64) std::atomic<std::uint32_t> claimed_{0};
  alignas(64) std::atomic<std::uint32_t> ended_{0};
};

}  // namespace lockstep::distributed::detail
