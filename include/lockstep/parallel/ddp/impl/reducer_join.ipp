// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/parallel/ddp/reducer_join.hpp>
#include <lockstep/parallel/join.hpp>

namespace lockstep::detail {

LOCKSTEP_INLINE void ReducerJoin::begin(const JoinContext& context, int phase) {
  check<ValueError>(!context_, "join: this DistributedDataParallel is in a join already");
  context_.emplace(context);
  phase_ = phase;
}

LOCKSTEP_INLINE void ReducerJoin::announce() {
  if (!context_) return;
  announcement_ = context_->announce(phase_);
  // An error that ends all ranks is thrown here, before this rank has begun a collective that the
  // others, which have been told already, never come to.
  if (context_->options().throw_on_early_termination) (void)announcement_.get();
}

LOCKSTEP_INLINE double ReducerJoin::factor(const JoinRound& round) const {
  if (!context_ || context_->options().divide_by_initial_world_size) return 1;
  return static_cast<double>(round.size()) / round.active();
}

}  // namespace lockstep::detail
