// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <functional>
#include <optional>

namespace lockstep {

namespace detail {

// The statistics by which training normalises.
struct BatchStatistics {
  Tensor mean;
  Tensor var;           // of the batch itself: divided by the number of values, n
  Tensor unbiased;      // the variance divided by n − 1; not recorded
  Tensor present = {};  // 0 if the batch is empty, else 1; undefined if it is known not to be
};

// The running statistics, which training moves towards those of its batches. Each may be undefined.
struct RunningStatistics {
  Tensor mean;
  Tensor var;
  Tensor batches;  // the number of batches, in i64, empty ones included
  double momentum;
};

// Gives the differentiable statistics of a whole batch, of which x [batch, channels, …] of f32 or
// f64 is a part, perhaps an empty one. Nothing if x is the whole batch.
using StatisticsSource = std::function<std::optional<BatchStatistics>(const Tensor& x)>;

}  // namespace detail

// (x − mean) / √(var + eps) · weight + bias for each channel of x [batch, channels, …]; weight and
// bias may be undefined.
//
// In training mean and variance are the batch's, and running_mean and running_var, if defined, move
// towards them by `momentum` (running_var towards the unbiased variance). Otherwise running_mean
// and running_var are used. Each replica of a DataParallel has its own statistics, except with
// ReplicaBuffers::synchronized, which takes those of the whole batch, so that all running
// statistics stay equal.
//
// **Torch counterpart.** torch.nn.functional.batch_norm; within replicas, SyncBatchNorm.
// **Devices and streams.** All tensors are on one device. Statistics are summed in double, in a
// fixed order. Half precision is computed in f32, which is the dtype of the other tensors then, and
// the result is rounded.
// **Backward.** Gradients of x, weight and bias, through the statistics; derivatives of any order.
// The running statistics change in place, unrecorded.
// **Threads and exceptions.** A ValueError for a single value per channel in training (with
// synchronized replicas, in all of them together), for missing running statistics, and for a
// negative eps. A ShapeError, DtypeError or DeviceError names the tensor that does not match.
Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                  const Tensor& weight = {}, const Tensor& bias = {}, bool training = false,
                  double momentum = 0.1, double eps = 1e-5);

}  // namespace lockstep

namespace lockstep::detail {

// Throws a ValueError if the whole batch has a single value, and so no variance. `own` values are
// of this part. `all`, the number of all, is on the device; the host waits for it only if a single
// value is possible.
void check_batch_count(double own, const Tensor& all, const char* parts, const Tensor& x);

// lockstep::batch_norm, in training with the statistics that `source` gives unless it is null.
Tensor batch_norm_from(const StatisticsSource* source, const Tensor& x,
                       const RunningStatistics& running, const Tensor& weight, const Tensor& bias,
                       bool training, double eps);

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/batch_norm.ipp>
#endif
