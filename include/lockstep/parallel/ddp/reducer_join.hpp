// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/parallel/join.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep::detail {

// A Reducer's part in a `join`, if it is in one.
//
// Threads: one at a time.
class ReducerJoin {
 public:
  explicit ReducerJoin(int ranks)
      : everyone_(std::vector<std::int32_t>(static_cast<std::size_t>(ranks), 1)) {}

  void begin(const JoinContext& context, int phase) {
    check<ValueError>(!context_, "join: this DistributedDataParallel is in a join already");
    context_.emplace(context);
    phase_ = phase;
  }
  void end() { context_.reset(); }

  // Announces a pass, before its first collective.
  void announce() {
    if (!context_) return;
    announcement_ = context_->announce(phase_);
    // An error that ends all ranks is thrown here, before this rank has begun a collective that the
    // others, which have been told already, never come to.
    if (context_->options().throw_on_early_termination) (void)announcement_.get();
  }
  // The ranks that contribute to the pass that was announced last.
  JoinRound round() const { return context_ ? announcement_.get() : everyone_; }

  // The factor that the mean over all ranks is multiplied with.
  double factor(const JoinRound& round) const {
    if (!context_ || context_->options().divide_by_initial_world_size) return 1;
    return static_cast<double>(round.size()) / round.active();
  }

 private:
  const JoinRound everyone_;
  std::optional<JoinContext> context_;
  int phase_ = 0;
  JoinAnnouncement announcement_;
};

}  // namespace lockstep::detail
