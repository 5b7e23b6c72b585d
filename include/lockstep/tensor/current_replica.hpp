// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/tensor/tensor.hpp>

#include <cstddef>

namespace lockstep::detail {

class ReplicaGroup;

// The replica that the calling thread runs; `group` is null outside of all replicas.
//
// It is declared here, below parallel/, since random numbers and layers with statistics of the
// whole batch read it, which do not know how replicas are run.
struct CurrentReplica {
  ReplicaGroup* group = nullptr;
  std::size_t index = 0;
  // Null unless statistics of the batch are taken over all replicas. Then it sums the tensors of
  // all replicas, differentiably, and returns the sum on the caller's device. All replicas have to
  // call it.
  Tensor (*sum_of_batch)(const Tensor&) = nullptr;
};
inline constinit thread_local CurrentReplica current_replica{};

}  // namespace lockstep::detail
