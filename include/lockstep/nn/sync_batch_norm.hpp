// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/current_replica.hpp>
#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/distributed/default_group.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/walk.hpp>
#include <lockstep/nn/batch_norm.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/batch_norm.hpp>
#include <lockstep/ops/cat.hpp>
#include <lockstep/ops/channel_norm.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep {

namespace detail {

// The sum of the ranks' tensors, on each rank; its gradient is the sum of the ranks'.
struct SumOverRanks {
  static constexpr const char* name = "sum_over_ranks";
  distributed::ProcessGroup group;

  Tensor forward(const Tensor& mine) const {
    Tensor sum = mine.clone();
    group.blocking().all_reduce(sum);
    return sum;
  }
  Tensor backward(const Backward&, const Tensor& grad) const {
    return lockstep::apply(SumOverRanks{group}, grad);
  }
};

// Mean and variance of each channel over the inputs of all ranks, and the number of their values.
// One collective forward and one backward, as many bytes as the statistics have.
struct MomentsOverRanks {
  static constexpr const char* name = "moments_over_ranks";
  distributed::ProcessGroup group;
  Saved x = {};
  Saved mean = {};
  Saved divisor = {};  // the number of values, but not 0

  std::vector<Tensor> forward(const Tensor& values) {
    x = values;
    const Axis axis(values.sizes(), 1);
    const Moments own = channel_moments(values, 1);
    const TensorOptions options = own.mean.options();
    const std::int64_t channels = own.mean.numel();
    const auto count = static_cast<double>(axis.outer * axis.inner);
    const Tensor all = empty({group.size(), 2 * channels + 1}, options);
    group.blocking().all_gather_into_tensor(all,
                                            cat({own.mean, own.var, full({1}, count, options)}));
    const Tensor counts = all.narrow(1, 2 * channels, 1);
    const Tensor total = sum(counts, {0});
    const Tensor values_or_one = relu(total - 1) + 1;
    const Tensor shares = counts / values_or_one;
    const Tensor means = all.narrow(1, 0, channels);
    const Tensor centre = sum(means * shares, {0});
    const Tensor spread = all.narrow(1, channels, channels) + square(means - centre);
    std::vector<Tensor> moments{centre, sum(spread * shares, {0}), total};
    mean = Saved::output(moments[0], 0);
    divisor = values_or_one;
    return moments;
  }

  // As for the moments of one input: a rank's values have the same part in the statistics that
  // every rank uses, so that the gradients of all count.
  Tensor backward(const Backward& saved, const std::vector<Tensor>& grads) const {
    const Tensor& known = grads[0].defined() ? grads[0] : grads[1];
    const auto or_zero = [&](const Tensor& grad) {
      return grad.defined() ? grad : zeros_like(known);
    };
    const Tensor sums =
        lockstep::apply(SumOverRanks{group}, cat({or_zero(grads[0]), or_zero(grads[1])})) /
        saved(divisor);
    const std::int64_t channels = sums.numel() / 2;
    return channel_affine(saved(x), 1, saved(mean), sums.narrow(0, channels, channels) * 2,
                          sums.narrow(0, 0, channels));
  }
};

// The statistics of the batch that the ranks of a group have together.
class StatisticsOverRanks final : public StatisticsSource {
 public:
  // An undefined group is the default group of the thread that calls forward.
  explicit StatisticsOverRanks(distributed::ProcessGroup group) : group_(std::move(group)) {}

  std::optional<BatchStatistics> of(const Tensor& x) const override {
    const distributed::ProcessGroup group = group_ ? group_ : distributed::default_group();
    if (group.size() == 1) return {};
    check<ValueError>(!current_replica.group,
                      "SyncBatchNorm: a replica of a DataParallel cannot be synchronised with "
                      "other ranks: the order of its collectives is not known");
    const std::vector<Tensor> moments = lockstep::apply(MomentsOverRanks{group}, x);
    const NoGradGuard guard;
    const Tensor& total = moments[2];
    // (By not less than 1, for a single value.)
    const Tensor unbiased = moments[1] * (total / (relu(total - 2) + 1));
    return BatchStatistics{moments[0], moments[1], unbiased, 1 - relu(1 - total)};
  }

 private:
  const distributed::ProcessGroup group_;
};

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
// DataParallel. Else as BatchNorm2d and ProcessGroup.
// **Example.** nn::SyncBatchNorm norm{64};
struct SyncBatchNorm : detail::BatchNorm {
  explicit SyncBatchNorm(std::int64_t features, const BatchNormOptions& options = {},
                         distributed::ProcessGroup process_group = {})
      : BatchNorm("SyncBatchNorm", features, options) {
    synchronized = std::make_shared<detail::StatisticsOverRanks>(std::move(process_group));
  }

  Tensor forward(const Tensor& x) const {
    return normalise("SyncBatchNorm", "[batch, channels, …]", x.dim() >= 2, x);
  }
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
  const auto source = std::make_shared<const detail::StatisticsOverRanks>(std::move(process_group));
  detail::walk_module(module, [&source]<class Node>(const std::string& path, Node& node) {
    if constexpr (std::derived_from<Node, detail::BatchNorm>) {
      if constexpr (std::is_const_v<Node>) {
        detail::fail<ModuleError>("convert_sync_batchnorm: the layer \"", path, "\" is const");
      } else {
        node.synchronized = source;
      }
    }
  });
}

}  // namespace nn

}  // namespace lockstep
