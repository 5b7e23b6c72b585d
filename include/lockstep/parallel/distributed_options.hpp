// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>

#include <optional>
#include <vector>

namespace lockstep {

// How a DistributedDataParallel reduces gradients and keeps buffers the same. Every rank gives the
// same options, except for the device.
//
// **Torch counterpart.** The arguments of torch.nn.parallel.DistributedDataParallel of these names.
// gradient_as_bucket_view is always on.
// **Example.** ls::DistributedDataParallel model{Net{}, group, {.find_unused_parameters = true}};
struct DistributedDataParallelOptions {
  // None or one: the device that the module runs on. By default, the one it is on or, if it is
  // wholly on plain `cpu`, the group's. Only a module on plain `cpu` is moved there.
  std::vector<Device> device_ids = {};
  // Whether the constructor gives all ranks rank 0's parameters and buffers. If not, you make sure
  // that they are the same.
  bool init_sync = true;
  // Whether each forward outside no_sync first gives all ranks rank 0's buffers, and the end of a
  // join the last rank's.
  bool forward_sync_buffers = true;
  // The size of a bucket in MiB; by default 25, but 1 for the first.
  std::optional<double> bucket_cap_mb = {};
  // Instead, the sizes of the first, second, … bucket; the last size is that of all further ones.
  std::vector<double> bucket_cap_mb_list = {};
  // Whether a backward may leave parameters without a gradient, on some ranks or on all. Which ones
  // is found at a backward's first gradient: those that neither it nor a backward around it
  // reaches. If one backward runs through several models, they must leave the same parameters
  // unused on every rank, since that decides the order of their buckets.
  bool find_unused_parameters = false;
  // Whether every backward uses the same parameters as the first one; the others are then neither
  // reduced nor searched for. Unlike in torch, it does not allow reentrant backwards, as in
  // activation checkpointing, to reach a parameter twice: that is an AutogradError.
  bool static_graph = false;
};

}  // namespace lockstep
