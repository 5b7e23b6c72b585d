// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/autograd/saved.hpp>
#include <lockstep/distributed/default_group.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/error.hpp>
#include <lockstep/nn/batch_norm.hpp>
#include <lockstep/nn/sync_batch_norm.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/batch_norm.hpp>
#include <lockstep/ops/cat.hpp>
#include <lockstep/ops/channel_norm.hpp>
#include <lockstep/ops/kernels/axis.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/current_replica.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep::detail {

// The sum of the ranks' tensors, on each rank; its gradient is the sum of the ranks' gradients.
struct SumOverRanks {
  static constexpr const char* name = "sum_over_ranks";
  distributed::ProcessGroup group;

  Tensor forward(const Tensor& mine) const {
    Tensor sum = mine.clone();
    (void)group.blocking().all_reduce(sum);
    return sum;
  }
  Tensor backward(const Backward&, const Tensor& grad) const {
    return lockstep::apply(SumOverRanks{group}, grad);
  }
};

// Mean and variance of each channel over the inputs of all ranks, and the number of values. It
// takes one collective forward and one backward, of as many bytes as the statistics have.
struct MomentsOverRanks {
  static constexpr const char* name = "moments_over_ranks";
  distributed::ProcessGroup group;
  Saved x = {};
  Saved mean = {};
  Saved divisor = {};  // the number of values, at least 1

  std::vector<Tensor> forward(const Tensor& values) {
    x = values;
    const Axis axis(values.sizes(), 1);
    const Moments own = channel_moments(values, 1);
    const TensorOptions options = own.mean.options();
    const std::int64_t channels = own.mean.numel();
    const auto count = static_cast<double>(axis.outer * axis.inner);
    const Tensor all = empty({group.size(), 2 * channels + 1}, options);
    (void)group.blocking().all_gather_into_tensor(
        all, cat({own.mean, own.var, full({1}, count, options)}));
    const Tensor counts = all.narrow(1, 2 * channels, 1);
    const Tensor total = sum(counts, {0});
    const Tensor values_or_one = clamp(total, 1);
    const Tensor shares = counts / values_or_one;
    const Tensor means = all.narrow(1, 0, channels);
    const Tensor centre = sum(means * shares, {0});
    const Tensor spread = all.narrow(1, channels, channels) + square(means - centre);
    std::vector<Tensor> moments{centre, sum(spread * shares, {0}), total};
    mean = Saved::output(moments[0], 0);
    divisor = values_or_one;
    return moments;
  }

  // As for the moments of one input, but with the gradients of all ranks added up, since every rank
  // uses the statistics.
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

LOCKSTEP_INLINE std::shared_ptr<const StatisticsSource> statistics_over_ranks(
    distributed::ProcessGroup of) {
  const auto statistics = [of = std::move(of)](const Tensor& x) -> std::optional<BatchStatistics> {
    const distributed::ProcessGroup group = of ? of : distributed::default_group();
    if (group.size() == 1) return {};
    check<ValueError>(!current_replica.group,
                      "SyncBatchNorm: a replica of a DataParallel cannot be synchronised with "
                      "other ranks: the order of its collectives is not known");
    const std::vector<Tensor> moments = lockstep::apply(MomentsOverRanks{group}, x);
    const NoGradGuard guard;
    const Tensor& total = moments[2];
    const Axis axis(x.sizes(), 1);
    check_batch_count(static_cast<double>(axis.outer * axis.inner), total, "ranks", x);
    const Tensor unbiased = moments[1] * (total / (total - 1));
    return BatchStatistics{moments[0], moments[1], unbiased, clamp(total, {}, 1)};
  };
  return std::make_shared<const StatisticsSource>(statistics);
}

}  // namespace lockstep::detail

namespace lockstep::nn {

LOCKSTEP_INLINE SyncBatchNorm::SyncBatchNorm(std::int64_t features, const BatchNormOptions& options,
                                             distributed::ProcessGroup process_group)
    : BatchNorm("SyncBatchNorm", features, options) {
  synchronized = detail::statistics_over_ranks(std::move(process_group));
}

LOCKSTEP_INLINE Tensor SyncBatchNorm::forward(const Tensor& x) const {
  return normalise("SyncBatchNorm", "[batch, channels, …]", x.dim() >= 2, x);
}

}  // namespace lockstep::nn
