// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/ops/reduction.hpp>
#include <lockstep/parallel/split.hpp>

#include <cstdint>
#include <optional>

namespace lockstep {

// What happens to buffers that replicas change in forward, such as running statistics.
enum class ReplicaBuffers {
  // Keeps the first replica's and loses the others', as torch does.
  first,
  // Sets floating-point buffers to the replicas' mean after forward, weighted by their rows; others
  // as `first`. If backward needs a buffer that forward changes, forward must use a clone() of it.
  merged,
  // Lets layers that support it, such as BatchNorm, take their statistics over all replicas, inside
  // forward. A layer asks replicas::synchronized() and calls replicas::all_reduce.
  synchronized,
};

// How a DataParallel divides its arguments and gathers its results.
//
// **Example.** ls::DataParallel model{Net{}, ls::devices(), {.split = ls::Split::balanced}};
struct DataParallelOptions {
  std::optional<Device> output_device = {};  // default: device_ids[0]
  std::int64_t dim = 0;                      // of the batch, in arguments and results
  Split split = Split::chunk;
  // How results without dimensions, such as a loss, are gathered: into a vector with one element
  // per replica, with a warning (`none`, as torch does), or as their sum or mean. The mean is
  // weighted by the replicas' rows, so means of chunks make the batch's mean.
  Reduction scalar_outputs = Reduction::none;
  ReplicaBuffers buffers = ReplicaBuffers::first;
};

}  // namespace lockstep
