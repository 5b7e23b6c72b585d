// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace cudasim {

inline constexpr std::size_t kHostActor = 0;

// A vector clock: of each actor (the host, then one a stream) how many of its steps are ordered
// before the one that carries the clock, itself included.
class Clock {
 public:
  bool covers(std::size_t actor, unsigned step) const { return step <= step_of(actor); }
  void join(const Clock& other) {
    if (steps_.size() < other.steps_.size()) steps_.resize(other.steps_.size());
    for (std::size_t i = 0; i < other.steps_.size(); ++i) {
      steps_[i] = std::max(steps_[i], other.steps_[i]);
    }
  }
  unsigned step_of(std::size_t actor) const { return actor < steps_.size() ? steps_[actor] : 0; }
  unsigned advance(std::size_t actor) {
    if (steps_.size() <= actor) steps_.resize(actor + 1);
    return ++steps_[actor];
  }

 private:
  std::vector<unsigned> steps_;
};

}  // namespace cudasim
