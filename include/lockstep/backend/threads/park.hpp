// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <climits>
#include <cstdint>

// How threads block until a word changes, and how others wake them.
//
// std::atomic::wait would do, but libstdc++'s yields several times before it blocks. A thread that
// yields a core to a busy one gets it back at the end of a time slice, after milliseconds; one that
// blocks is back microseconds after it is woken.
//
// Threads: these functions order nothing; a parked thread reads the word again. A thread that wakes
// others changes the word first, with a read-modify-write. The word may be destroyed before the
// wake, which only uses its address.
namespace lockstep::detail {

// Blocks while `word` is `value`; may return early. For words whose value tells that a thread is
// parked, so that only then `unpark` is called.
inline void park(const std::atomic<std::uint32_t>& word, std::uint32_t value) noexcept {
  static_assert(sizeof(word) == sizeof(value) && std::atomic<std::uint32_t>::is_always_lock_free);
  (void)::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}

// Wakes at most `threads` of the threads parked at the word.
inline void unpark(std::atomic<std::uint32_t>& word, int threads = INT_MAX) noexcept {
  (void)::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, threads, nullptr, nullptr, 0);
}

// The number of threads in `park_counted`, or about to park, at this word or another one that
// shares the counter.
inline std::atomic<std::uint32_t>& parked_at(const void* word) noexcept {
  struct alignas(64) Count {
    std::atomic<std::uint32_t> threads{0};
  };
  static constinit std::array<Count, 64> counts{};
  return counts[reinterpret_cast<std::uintptr_t>(word) / 64 % counts.size()].threads;
}

// As `park` and `unpark`, for words whose value does not tell whether a thread is parked:
// `unpark_counted` costs one load if none is.
inline void park_counted(const std::atomic<std::uint32_t>& word, std::uint32_t value) noexcept {
  std::atomic<std::uint32_t>& parked = parked_at(&word);
  parked.fetch_add(1, std::memory_order_seq_cst);
  park(word, value);
  parked.fetch_sub(1, std::memory_order_relaxed);
}
inline bool any_parked(const std::atomic<std::uint32_t>& word) noexcept {
  return parked_at(&word).load(std::memory_order_seq_cst) != 0;
}
inline void unpark_counted(std::atomic<std::uint32_t>& word, int threads = INT_MAX) noexcept {
  if (any_parked(word)) unpark(word, threads);
}

}  // namespace lockstep::detail
