// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/tensor/tensor.hpp>

#include <cstddef>

namespace lockstep::detail {

class ReplicaGroup;

// Which replica the calling thread runs; outside of any, no group.
//
// It is here, below parallel, for what depends on it without knowing how replicas are run: layers
// that take statistics of the whole batch, and random numbers.
struct CurrentReplica {
  ReplicaGroup* group = nullptr;
  std::size_t index = 0;
  // Null unless statistics of the batch are to be taken over all replicas: then the differentiable
  // sum of every replica's tensor, for each on its own device, for which all have to call it.
  Tensor (*sum_of_batch)(const Tensor&) = nullptr;
};
inline constinit thread_local CurrentReplica current_replica{};

}  // namespace lockstep::detail
