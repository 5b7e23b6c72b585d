// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>

#include <optional>
#include <vector>

namespace lockstep {

// How a DistributedDataParallel reduces gradients and keeps buffers the same. Every rank gives the
// same ones, but for the device.
//
// **Torch counterpart.** The arguments of torch.nn.parallel.DistributedDataParallel of these names.
// gradient_as_bucket_view is always on.
// **Example.** ls::DistributedDataParallel model{Net{}, group, {.find_unused_parameters = true}};
struct DistributedDataParallelOptions {
  // None or one: where the module is to run. By default it is where the module is or, if that is
  // wholly on plain `cpu`, the group's device. A module on plain `cpu` is moved there; any other
  // has to be there.
  std::vector<Device> device_ids = {};
  // Whether rank 0's parameters and buffers become everybody's at construction. If not, the user
  // sees to it that they are the same.
  bool init_sync = true;
  // Whether rank 0's buffers become everybody's before each forward outside no_sync, and the last
  // rank's at the end of a join.
  bool forward_sync_buffers = true;
  // The size of a bucket in MiB; by default 25, and 1 for the first.
  std::optional<double> bucket_cap_mb = {};
  // In its place, the sizes of the first, second, … bucket; the last one is that of all further
  // ones.
  std::vector<double> bucket_cap_mb_list = {};
  // Whether a parameter may be without a gradient in some backward, on some ranks or on all. At a
  // backward's first gradient, parameters count as unused if neither this backward nor one that
  // calls it reaches them. Of several models in one backward, which one's bucket is full first
  // depends on what is unused: they have to leave the same parameters unused on every rank.
  bool find_unused_parameters = false;
  // Whether every backward uses the same parameters as the first one. Those that it does not use
  // are then neither reduced nor looked for. It is no leave to call backward within backward twice
  // for one parameter, as torch's is for activation checkpointing: that is an AutogradError.
  bool static_graph = false;
};

}  // namespace lockstep
