// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/group/call.hpp>
#include <lockstep/distributed/reduce_op.hpp>
#include <lockstep/distributed/watchdog/watchdog_progress.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/dtype.hpp>

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::distributed {

LOCKSTEP_INLINE void Progress::enter(const detail::Call& call) noexcept {
  // Released, so that a reader that acquires a value of a later collective here finds that `state_`
  // has changed, and reads again.
  count_.store(call.count, std::memory_order_release);
  what_.store(pack(call), std::memory_order_release);
  state_.store(state_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

LOCKSTEP_INLINE std::optional<Progress::Snapshot> Progress::snapshot() const noexcept {
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

LOCKSTEP_INLINE std::uint64_t Progress::pack(const detail::Call& call) {
  return static_cast<std::uint64_t>(call.collective) | static_cast<std::uint64_t>(call.dtype) << 8 |
         static_cast<std::uint64_t>(call.op) << 16 |
         std::uint64_t{static_cast<std::uint32_t>(call.root)} << 32;
}

LOCKSTEP_INLINE detail::Call Progress::unpack(std::uint64_t what, std::uint64_t count) {
  return {static_cast<detail::Collective>(what & 0xFF), static_cast<Dtype>(what >> 8 & 0xFF),
          static_cast<ReduceOp>(what >> 16 & 0xFF), static_cast<int>(what >> 32), count};
}

LOCKSTEP_INLINE InCollective::~InCollective() {
  if (progress_) progress_->leave();
}

}  // namespace lockstep::distributed

namespace lockstep::distributed::detail {

LOCKSTEP_INLINE std::string describe(std::uint64_t number, const std::string& call) {
  return lockstep::detail::str("collective #", number, ", ", call);
}

}  // namespace lockstep::distributed::detail
