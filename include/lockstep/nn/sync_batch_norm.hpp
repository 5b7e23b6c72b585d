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

// Gives the statistics of the whole batch of a group's ranks. An undefined group means the default
// group of the thread that calls forward.
std::shared_ptr<const StatisticsSource> statistics_over_ranks(distributed::ProcessGroup group);

}  // namespace detail

namespace nn {

// BatchNorm for inputs [batch, channels, …] whose batch is spread over the ranks of a group. In
// training it normalises each channel by the mean and variance over all ranks, whose running
// statistics stay equal.
//
// Ranks may have different numbers of rows, or none. In evaluation it is a BatchNorm and does not
// communicate. Gradients of weight and bias are those of the rank's own rows;
// DistributedDataParallel averages them like all others.
//
// All ranks must call forward equally often and in the same order, and backward through the same
// forwards, since both communicate. So DistributedDataParallel::join does not work with it, and
// with find_unused_parameters all ranks must use the same parameters after it in backward.
//
// **Torch counterpart.** torch.nn.SyncBatchNorm, with the same names and order of the state; also
// for half precision and the CPU.
// **Devices and streams.** Each rank uses one device. The caller waits for one all_gather in
// forward and one all_reduce in backward, of two numbers a channel.
// **Backward.** As lockstep::batch_norm, higher orders included.
// **Threads and exceptions.** Copies share the group. Without one, it is the default group of the
// thread that calls forward, and an Error if there is none. A ValueError within a replica of a
// DataParallel if there are several ranks, and on every rank if a channel has only one value in all
// of them. Otherwise as BatchNorm2d and ProcessGroup.
// **Example.** nn::SyncBatchNorm norm{64};
struct SyncBatchNorm : detail::BatchNorm {
  explicit SyncBatchNorm(std::int64_t features, const BatchNormOptions& options = {},
                         distributed::ProcessGroup process_group = {});

  Tensor forward(const Tensor& x) const;
  Tensor operator()(const Tensor& x) const { return forward(x); }
};

// Makes every BatchNorm in the module take its statistics over the ranks of a group, as
// SyncBatchNorm does. It changes the layers in place; their types, parameters and buffers stay.
//
// Every rank calls it, before or after it makes a DistributedDataParallel of the module. Later
// copies of the module are synchronised as well.
//
// **Torch counterpart.** torch.nn.SyncBatchNorm.convert_sync_batchnorm, which returns the module.
// **Threads and exceptions.** A ModuleError that names a layer that is const.
// **Example.** nn::convert_sync_batchnorm(net); // over the default group at the time of forward
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
