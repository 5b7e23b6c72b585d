// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
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

  void begin(const JoinContext& context, int phase);
  void end() { context_.reset(); }

  // Announces a pass, before its first collective.
  void announce();
  // The ranks that contribute to the pass that was announced last.
  JoinRound round() const { return context_ ? announcement_.get() : everyone_; }

  // The factor that the mean over all ranks is multiplied with.
  double factor(const JoinRound& round) const;

 private:
  const JoinRound everyone_;
  std::optional<JoinContext> context_;
  int phase_ = 0;
  JoinAnnouncement announcement_;
};

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/parallel/ddp/impl/reducer_join.ipp>
#endif
