// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/cores.hpp>

#include <atomic>
#include <cstdint>

namespace lockstep::distributed::detail {

// A barrier for the ranks of a world of threads, used again and again: what each did before `meet`
// is visible to all when it returns. Once it is broken, no further round takes place.
//
// The state is one word, so that all ranks see the same, whether a round took place or was broken:
// bit 0 says that it is broken, the next 11 bits how many have come, and the rest counts the
// rounds. A rank is at most one round behind, so the count may wrap around.
class Rendezvous {
 public:
  static constexpr int kMaxSize = 1024;

  explicit Rendezvous(int size)
      : size_(static_cast<std::uint32_t>(size)), fits_(size_ <= lockstep::detail::usable_cores()) {}

  // Returns true when all have come, false if it was broken before that.
  bool meet() noexcept;

  void break_off() noexcept;

 private:
  static constexpr std::uint32_t kBroken = 1;
  static constexpr std::uint32_t kOneArrived = 2;
  static constexpr unsigned kRoundShift = 12;

  static std::uint32_t arrived(std::uint32_t word);
  static std::uint32_t round(std::uint32_t word) { return word >> kRoundShift; }

  bool await_end_of(std::uint32_t mine) const noexcept;

  const std::uint32_t size_;
  const bool fits_;  // each rank can have a core
  alignas(64) std::atomic<std::uint32_t> word_{0};
  // The core on which the last rank to arrive ran, in the last round or the next one: a hint for
  // those woken.
  std::atomic<int> core_of_last_{-1};
};

}  // namespace lockstep::distributed::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/store/impl/rendezvous.ipp>
#endif
