// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/work.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/parallel/join.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep::detail {

LOCKSTEP_INLINE void shadow_until_all_have_joined(
    const std::shared_ptr<JoinState>& state, const std::vector<std::unique_ptr<JoinHook>>& hooks) {
  const JoinContext context(state, 0);
  for (;;) {
    const JoinExchange exchange = context.meet_joined();
    if (exchange.active() == 0) break;
    const std::int32_t code = exchange.code(exchange.last_active());
    const auto joinable = static_cast<std::size_t>(JoinContext::joinable_of(code));
    check<ValueError>(joinable < hooks.size(), "join: rank ", exchange.last_active(), " has ",
                      joinable + 1, " joinables at least, rank ", state->group.rank(), " has ",
                      hooks.size());
    hooks[joinable]->main_hook(JoinContext::phase_of(code), exchange);
  }
  for (const auto& hook : hooks) hook->post_hook(state->last_active);
}

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE int JoinExchange::last_active() const {
  int rank = size() - 1;
  while (rank >= 0 && code(rank) == 0) --rank;
  return rank;
}

LOCKSTEP_INLINE JoinExchange JoinAnnouncement::get() const {
  work_.wait();
  JoinExchange exchange(codes_.to_vector<std::int32_t>());
  const int last = exchange.last_active();
  if (last < 0) return exchange;
  for (int r = 0; r < last; ++r) {
    check<ValueError>(exchange.code(r) == 0 || exchange.code(r) == exchange.code(last),
                      "join: ranks ", r, " and ", last,
                      " are not at the same point: each rank that has inputs left has to call "
                      "the same forward and backward passes, with the same JoinOptions");
  }
  state_->last_active = last;
  if (state_->options.throw_on_early_termination && exchange.active() < exchange.size()) {
    const int own = state_->group.rank();
    check<Error>(exchange.code(own) != 0, "Rank ", own, " exhausted all inputs.");
    detail::fail<Error>(
        "Detected at least one rank that exhausted inputs. Throwing across all ranks.");
  }
  return exchange;
}

LOCKSTEP_INLINE JoinAnnouncement JoinContext::tell(const distributed::ProcessGroup& group,
                                                   std::int32_t code) const {
  const Tensor codes = empty({group.size()}, {.dtype = Dtype::i32, .device = state_->device});
  const Tensor mine = tensor({code}, state_->device);
  distributed::Work work = group.all_gather_into_tensor(codes, mine);
  return {state_, std::move(work), codes};
}

}  // namespace lockstep
