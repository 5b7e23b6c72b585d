// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/tensor/tensor.hpp>

#include <cstddef>

namespace lockstep::detail {

class ReplicaGroup;

// The replica that the calling thread runs; `group` is null outside replicas.
//
// It is declared here, below parallel/, for random numbers and for layers with statistics of the
// whole batch.
struct CurrentReplica {
  ReplicaGroup* group = nullptr;
  std::size_t index = 0;
  // Sums the replicas' tensors, differentiably, and returns the sum on the caller's device; all
  // replicas must call it. Null unless statistics of the batch are taken over all replicas.
  Tensor (*sum_of_batch)(const Tensor&) = nullptr;
};
inline constinit thread_local CurrentReplica current_replica{};

}  // namespace lockstep::detail
