// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <functional>
#include <optional>

namespace lockstep {

namespace detail {

// The statistics that training normalises with.
struct BatchStatistics {
  Tensor mean;
  Tensor var;           // of the batch itself: divided by the number of values
  Tensor unbiased;      // estimates that of the population: divided by one less; not recorded
  Tensor present = {};  // 0 if the batch is empty, otherwise 1; undefined: it is not empty
};

// What training moves towards the statistics of its batches: all, or what of it is defined.
struct RunningStatistics {
  Tensor mean;
  Tensor var;
  Tensor batches;  // of i64: one is added for each, also for an empty one
  double momentum;
};

// Gives the differentiable statistics of a whole batch, of which x [batch, channels, …] of f32 or
// f64 is a part, perhaps without elements. Nothing if x is the whole batch.
using StatisticsSource = std::function<std::optional<BatchStatistics>(const Tensor& x)>;

}  // namespace detail

// (x − mean) / √(var + eps) · weight + bias, for each channel of x [batch, channels, …]; weight and
// bias may be undefined.
//
// In training mean and variance are the batch's, and running_mean and running_var, if defined, move
// towards them by `momentum` (running_var towards the unbiased variance). Outside training
// running_mean and running_var are mean and variance. In replicas of a DataParallel with
// ReplicaBuffers::synchronized the statistics are the whole batch's, so that every replica's
// running statistics are alike; otherwise each replica has its own.
//
// **Torch counterpart.** torch.nn.functional.batch_norm; within replicas, SyncBatchNorm.
// **Devices and streams.** All on one device. Statistics are summed in double, in a fixed order.
// What each channel has is computed by one kernel, forward and backward, unless the statistics are
// those of several replicas.
// Half precision is computed in f32, which then is the dtype of the other tensors, and the result
// is rounded.
// **Backward.** Into x, weight and bias, through the statistics; with derivatives of its own. The
// running statistics are changed in place, unrecorded.
// **Threads and exceptions.** A ValueError for one value per channel in training (where replicas
// are synchronized: in all of them together), where running statistics are missing, and for a
// negative eps. A ShapeError, DtypeError or DeviceError names the tensor that does not fit.
Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                  const Tensor& weight = {}, const Tensor& bias = {}, bool training = false,
                  double momentum = 0.1, double eps = 1e-5);

}  // namespace lockstep

namespace lockstep::detail {

// Throws a ValueError if the whole batch has a single value, and so no variance. `own` of the
// values are this part's. `all`, the number of all, is on the device; the host waits for it only if
// a single value is possible.
void check_batch_count(double own, const Tensor& all, const char* parts, const Tensor& x);

// lockstep::batch_norm; in training with the statistics that `source` gives, if it is not null.
Tensor batch_norm_from(const StatisticsSource* source, const Tensor& x,
                       const RunningStatistics& running, const Tensor& weight, const Tensor& bias,
                       bool training, double eps);

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/batch_norm.ipp>
#endif
