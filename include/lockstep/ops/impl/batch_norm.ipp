// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/engine/current_replica.hpp>
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/batch_norm.hpp>
#include <lockstep/ops/cat.hpp>
#include <lockstep/ops/channel_norm.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/kernels/softmax_kernels.hpp>
#include <lockstep/ops/operands.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/half.hpp>
#include <lockstep/tensor/shape.hpp>

#include <optional>

namespace lockstep::detail {

inline BatchStatistics own_statistics(const Moments& own, double count) {
  const NoGradGuard guard;
  return {own.mean, own.var, own.var * (count / (count - 1))};
}

LOCKSTEP_INLINE void check_batch_count(double own, const Tensor& all, const char* parts,
                                       const Tensor& x) {
  check<ValueError>(own > 1 || all.detach().item() != 1,
                    "Expected more than 1 value per channel when training, got input size ",
                    x.sizes(), " and 1 value in all ", parts);
}

// The statistics over all replicas, each with its own number of values. The replicas exchange two
// sums, of values and then of squared differences from the mean. Sums and sums of squares in one
// exchange would leave little of the difference where the mean is large.
inline BatchStatistics statistics_of_all(const Tensor& x, const Moments& own, double count,
                                         Tensor (*sum_of_batch)(const Tensor&)) {
  const std::int64_t channels = own.mean.numel();
  const Tensor total = sum_of_batch(cat({own.mean * count, full({1}, count, own.mean.options())}));
  const Tensor values = total.narrow(0, channels, 1);
  check_batch_count(count, values, "replicas", x);
  const Tensor divisor = relu(values - 1) + 1;  // not 0 for an empty batch
  const Tensor mean = total.narrow(0, 0, channels) / divisor;
  const Tensor squares = sum_of_batch((own.var + square(own.mean - mean)) * count);
  const Tensor var = squares / divisor;
  const NoGradGuard guard;
  // (The divisor of the squares is at least 1, for an empty batch.)
  return {mean, var, squares / (relu(values - 2) + 1), 1 - relu(1 - values)};
}

// Moves `running` towards the batch's statistics; those of an empty batch leave it as it is.
inline void move_towards(const Tensor& running, const Tensor& batch, const Tensor& present,
                         double momentum) {
  const Tensor target = present.defined() ? batch * present + running * (1 - present) : batch;
  running.mul_(1 - momentum).add_(target, momentum);
}

// The statistics of the batch that x is, or is a part of; moves the running ones towards them.
inline BatchStatistics take_statistics(const Tensor& x, const Tensor& running_mean,
                                       const Tensor& running_var, double momentum,
                                       const StatisticsSource* source) {
  const Axis axis(x.sizes(), 1);
  const auto count = static_cast<double>(axis.outer * axis.inner);
  std::optional<BatchStatistics> batch;
  if (source) batch = source->of(x);
  if (!batch && axis.inner > 0 && current_replica.sum_of_batch) {
    batch = statistics_of_all(x, channel_moments(x, 1), count, current_replica.sum_of_batch);
  }
  const bool shared = batch.has_value();
  if (!shared) {
    check<ValueError>(count != 1,
                      "Expected more than 1 value per channel when training, got input size ",
                      x.sizes(),
                      current_replica.group ? ". DataParallel's option .split = "
                                              "ls::Split::chunk.at_least(2) gives each replica two "
                                              "rows or more"
                                            : "");
    batch = own_statistics(channel_moments(x, 1), count);
  }
  if (running_mean.defined() && (shared || count > 0)) {
    const NoGradGuard guard;
    move_towards(running_mean, batch->mean, batch->present, momentum);
    move_towards(running_var, batch->unbiased, batch->present, momentum);
  }
  return *batch;
}

inline void check_channels(const char* name, const Tensor& tensor, const Tensor& x) {
  if (!tensor.defined()) return;
  check_same_kind("batch_norm", "the input", x, name, tensor);
  check<ShapeError>(tensor.sizes() == Shape{x.size(1)}, "batch_norm: expected ", name,
                    " to be of shape ", Shape{x.size(1)}, ", got ", tensor.sizes(),
                    " for an input of shape ", x.sizes());
}

LOCKSTEP_INLINE Tensor batch_norm_from(const StatisticsSource* source, const Tensor& x,
                                       const Tensor& running_mean, const Tensor& running_var,
                                       const Tensor& weight, const Tensor& bias, bool training,
                                       double momentum, double eps) {
  check_defined("batch_norm", "the input", x);
  if (is_half_precision(x.dtype())) {
    return batch_norm_from(source, x.to(Dtype::f32), running_mean, running_var, weight, bias,
                           training, momentum, eps)
        .to(x.dtype());
  }
  check<ShapeError>(x.dim() >= 2,
                    "batch_norm: expected an input of shape [batch, channels, …], got ", x.sizes());
  check<ValueError>(
      running_mean.defined() == running_var.defined() && (training || running_mean.defined()),
      "batch_norm: expected running_mean and running_var to be defined when "
      "training is false, and both or none when it is true");
  check_channels("running_mean", running_mean, x);
  check_channels("running_var", running_var, x);
  check_channels("weight", weight, x);
  check_channels("bias", bias, x);

  Tensor mean = running_mean;
  Tensor var = running_var;
  if (training) {
    const BatchStatistics batch = take_statistics(x, running_mean, running_var, momentum, source);
    mean = batch.mean;
    var = batch.var;
  } else if (is_grad_enabled() && weight.defined() && weight.requires_grad()) {
    mean = mean.clone();  // for backward: the running one may change before that
  }
  const Tensor scale = inverse_deviation(var, eps);
  return channel_affine(x, 1, mean, weight.defined() ? scale * weight : scale, bias);
}

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE Tensor batch_norm(const Tensor& x, const Tensor& running_mean,
                                  const Tensor& running_var, const Tensor& weight,
                                  const Tensor& bias, bool training, double momentum, double eps) {
  return detail::batch_norm_from(nullptr, x, running_mean, running_var, weight, bias, training,
                                 momentum, eps);
}

}  // namespace lockstep
