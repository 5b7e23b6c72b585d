// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/algorithm.hpp>
#include <lockstep/config.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::detail {

// Which parameters of a Reducer got a gradient, in this pass and in earlier ones.
//
// Threads: one at a time.
class ReducerUsage {
 public:
  // A parameter in a pass: still without a gradient, with one, or without one at the end.
  enum class State : unsigned char { waiting, ready, unused };

  explicit ReducerUsage(std::size_t parameters) : members_(parameters) {}

  // Notes a gradient, even one within no_sync.
  void note_gradient(std::size_t i) { members_[i].used = true; }

  void begin_pass() {
    ready_order_.clear();
    for (Member& member : members_) member.state = State::waiting;
  }
  void mark(std::size_t i, State state) {
    members_[i].state = state;
    if (state == State::ready) ready_order_.push_back(static_cast<std::int64_t>(i));
  }
  State state(std::size_t i) const { return members_[i].state; }
  std::vector<std::size_t> in_state(State state) const {
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < members_.size(); ++i) {
      if (members_[i].state == state) found.push_back(i);
    }
    return found;
  }

  // The order in which gradients became ready in this pass, followed by those that never did.
  std::vector<std::int64_t> order() const {
    std::vector<std::int64_t> all = ready_order_;
    for (const std::size_t i : in_state(State::unused)) all.push_back(static_cast<std::int64_t>(i));
    return all;
  }

  // Ones and zeros: whether this rank has a gradient for the other ranks, from this pass or, if
  // `accumulated`, from any pass since the last reduction.
  std::vector<std::int32_t> used(bool accumulated) const {
    std::vector<std::int32_t> flags;
    for (const Member& member : members_) {
      flags.push_back(accumulated ? member.used : member.state == State::ready);
    }
    return flags;
  }

  // `counts` is the number of ranks that have used each parameter.
  void set_used_anywhere(const std::vector<std::int32_t>& counts) {
    for (std::size_t i = 0; i < counts.size(); ++i) members_[i].used_anywhere = counts[i] > 0;
  }
  // True until the ranks have counted.
  bool used_anywhere(std::size_t i) const { return members_[i].used_anywhere; }

  // Whether the first pass used the parameter: on this rank or, if it had joined, on any.
  bool used_at_first(std::size_t i) const { return members_[i].used_at_first; }
  void remember_first_pass(bool joined) {
    for (Member& member : members_) {
      member.used_at_first = joined ? member.used_anywhere : member.state == State::ready;
    }
  }
  bool as_in_first_pass() const {
    return all_of(members_, [](const Member& member) {
      return member.used_at_first == (member.state == State::ready);
    });
  }

  // The gradients have been reduced.
  void end_pass() {
    for (Member& member : members_) member.used = false;
  }

 private:
  struct Member {
    State state = State::waiting;
    bool used = false;          // has got a gradient since the last reduction
    bool used_anywhere = true;  // some rank has used it
    bool used_at_first = false;
  };

  std::vector<Member> members_;  // one for each parameter
  std::vector<std::int64_t> ready_order_;
};

}  // namespace lockstep::detail
