// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/parallel/ddp/reducer_usage.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::detail {

LOCKSTEP_INLINE void ReducerUsage::begin_pass() {
  ready_order_.clear();
  for (Member& member : members_) member.state = State::waiting;
}

LOCKSTEP_INLINE void ReducerUsage::mark(std::size_t i, State state) {
  members_[i].state = state;
  if (state == State::ready) ready_order_.push_back(static_cast<std::int64_t>(i));
}

LOCKSTEP_INLINE std::vector<std::size_t> ReducerUsage::in_state(State state) const {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (members_[i].state == state) found.push_back(i);
  }
  return found;
}

LOCKSTEP_INLINE std::vector<std::int64_t> ReducerUsage::order() const {
  std::vector<std::int64_t> all = ready_order_;
  for (const std::size_t i : in_state(State::unused)) all.push_back(static_cast<std::int64_t>(i));
  return all;
}

LOCKSTEP_INLINE std::vector<std::int32_t> ReducerUsage::used(bool accumulated) const {
  std::vector<std::int32_t> flags;
  for (const Member& member : members_) {
    flags.push_back(accumulated ? member.used : member.state == State::ready);
  }
  return flags;
}

LOCKSTEP_INLINE void ReducerUsage::remember_first_pass(bool joined) {
  for (Member& member : members_) {
    member.used_at_first = joined ? member.used_anywhere : member.state == State::ready;
  }
}

LOCKSTEP_INLINE bool ReducerUsage::as_in_first_pass() const {
  for (const Member& member : members_) {
    if (member.used_at_first != (member.state == State::ready)) return false;
  }
  return true;
}

}  // namespace lockstep::detail
