// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/node.hpp>
#include <lockstep/config.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/walk/walk.hpp>
#include <lockstep/nn/batch_norm.hpp>
#include <lockstep/ops/batch_norm.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <concepts>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

namespace lockstep {

namespace detail {

// Gives the statistics of the batch that the ranks of a group have together. An undefined group is
// the default group of the thread that calls forward.
std::shared_ptr<const StatisticsSource> statistics_over_ranks(distributed::ProcessGroup group);

}  // namespace detail

namespace nn {

// BatchNorm for inputs [batch, channels, …] whose batch is spread over the ranks of a group: in
// training each channel is normalised by the mean and variance of what all ranks have, and their
// running statistics move alike.
//
// Ranks may have different numbers of rows, or none. In evaluation it is a BatchNorm, and nothing
// is communicated. Gradients of weight and bias are those of the rank's own rows:
// DistributedDataParallel averages them as all others.
//
// Each rank calls forward equally often and in the same order, and backward through the same
// forwards: both communicate. So DistributedDataParallel::join cannot stand in for a rank, and with
// find_unused_parameters what comes after it in backward has to be used alike on all ranks.
//
// **Torch counterpart.** torch.nn.SyncBatchNorm; names and order of the state are its. Half
// precision and the CPU are taken as well.
// **Devices and streams.** A rank has one device. One all_gather in forward and one all_reduce in
// backward, of two numbers a channel, which the caller waits for.
// **Backward.** As lockstep::batch_norm, also to higher orders.
// **Threads and exceptions.** Copies share the group: without one, it is the default group of the
// thread that calls forward, and an Error if there is none. A ValueError within a replica of a
// DataParallel, and on every rank for one value per channel in all of them. Else as BatchNorm2d and
// ProcessGroup.
// **Example.** nn::SyncBatchNorm norm{64};
struct SyncBatchNorm : detail::BatchNorm {
  explicit SyncBatchNorm(std::int64_t features, const BatchNormOptions& options = {},
                         distributed::ProcessGroup process_group = {});

  Tensor forward(const Tensor& x) const;
  Tensor operator()(const Tensor& x) const { return forward(x); }
};

// Makes every BatchNorm in the module, in place, one that takes statistics over the ranks of a
// group, as SyncBatchNorm does. Its type, parameters and buffers stay what they are.
//
// Called before or after the module is given to a DistributedDataParallel, on every rank. Copies of
// the module that are made later are synchronised as well.
//
// **Torch counterpart.** torch.nn.SyncBatchNorm.convert_sync_batchnorm, which returns the module.
// **Threads and exceptions.** A ModuleError that names the layer where it is const.
// **Example.** nn::convert_sync_batchnorm(net);  // of the default group at the time of forward
template <class M>
void convert_sync_batchnorm(M& module, distributed::ProcessGroup process_group = {}) {
  const auto source = detail::statistics_over_ranks(std::move(process_group));
  detail::walk_module(module, [&source]<class Node>(const detail::nested::Path& path, Node& node) {
    if constexpr (std::derived_from<Node, detail::BatchNorm>) {
      if constexpr (std::is_const_v<Node>) {
        detail::fail<ModuleError>("convert_sync_batchnorm: the layer \"", path.name(),
                                  "\" is const");
      } else {
        node.synchronized = source;
      }
    }
  });
}

}  // namespace nn

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/nn/impl/sync_batch_norm.ipp>
#endif
