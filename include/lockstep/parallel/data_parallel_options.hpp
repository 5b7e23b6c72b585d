// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/ops/reduction.hpp>
#include <lockstep/parallel/split.hpp>

#include <cstdint>
#include <optional>

namespace lockstep {

// What becomes of buffers that replicas change in forward, such as running statistics. A layer that
// supports `synchronized`, as BatchNorm does, asks replicas::synchronized() and calls
// replicas::all_reduce.
enum class ReplicaBuffers {
  first,   // the first replica's stay, the others' are lost: torch's way
  merged,  // floating-point ones become the replicas' mean after forward, weighted with their rows;
           // others as first. A forward that changes a buffer and whose backward needs it has to
           // use a clone() of it.
  synchronized,  // layers that support it take their statistics over all replicas, inside forward
};

// How a DataParallel divides its arguments and brings together its results.
//
// **Example.** ls::DataParallel model{Net{}, ls::devices(), {.split = ls::Split::balanced}};
struct DataParallelOptions {
  std::optional<Device> output_device = {};  // default: device_ids[0]
  std::int64_t dim = 0;                      // of the batch, in arguments and results
  Split split = Split::chunk;
  // Results without dimensions, such as a loss: a vector with one element a replica and a warning
  // (torch's way), their sum, or their mean weighted with the replicas' rows, which is the batch's
  // mean where each is its chunk's.
  Reduction scalar_outputs = Reduction::none;
  ReplicaBuffers buffers = ReplicaBuffers::first;
};

}  // namespace lockstep
