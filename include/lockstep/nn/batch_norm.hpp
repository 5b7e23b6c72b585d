// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/nn/layer.hpp>
#include <lockstep/ops/batch_norm.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>
#include <memory>

namespace lockstep::nn {

struct BatchNormOptions {
  double eps = 1e-5;
  double momentum = 0.1;  // how far the running statistics move towards a batch's
  bool affine = true;
  bool track_running_stats = true;
  Dtype dtype = Dtype::f32;
  Device device = {};
};

}  // namespace lockstep::nn

namespace lockstep::detail {

// The common part of the BatchNorms: everything but the shapes that forward takes.
struct BatchNorm : nn::WeightAndBias {
  // weight: [num_features], initially 1; bias: [num_features], initially 0; both may be absent
  Buffer running_mean;         // [num_features], initially 0, or absent
  Buffer running_var;          // [num_features], initially 1, or absent
  Buffer num_batches_tracked;  // an i64 without dimensions, or absent
  std::int64_t num_features;
  double eps;
  double momentum;
  bool training = true;
  // Gives the statistics in training; if null, those of the input are used. See
  // nn::convert_sync_batchnorm.
  std::shared_ptr<const StatisticsSource> synchronized = {};

  template <class Self, class Visitor>
  static void visit_members(Self& self, Visitor&& visit) {
    WeightAndBias::visit_members(self, visit);
    visit("running_mean", self.running_mean);
    visit("running_var", self.running_var);
    visit("num_batches_tracked", self.num_batches_tracked);
    visit("training", self.training);
  }

 protected:
  BatchNorm(const char* layer, std::int64_t features, const nn::BatchNormOptions& options);

  Tensor normalise(const char* layer, const char* expected, bool fits, const Tensor& x) const;
};

}  // namespace lockstep::detail

namespace lockstep::nn {

// Normalises each feature of x [batch, features] or [batch, features, length] over the batch: in
// training by the batch's own statistics, which also update the running ones, else by the running
// ones.
//
// Each replica normalises its own rows, and replica 0's running statistics are kept; see
// ReplicaBuffers for statistics of the whole batch, and convert_sync_batchnorm for those over
// several ranks. A copy shares parameters and buffers with the original: they are handles.
//
// **Torch counterpart.** torch.nn.BatchNorm1d, with the same names and order of the state. Without
// track_running_stats there are no buffers, and the batch's statistics are always used.
// **Threads and exceptions.** A ValueError for an invalid size, eps or momentum, a DtypeError for a
// dtype other than f32 and f64. forward throws a ShapeError for an input of another shape, and what
// lockstep::batch_norm throws.
// **Example.** nn::BatchNorm1d norm{128, {.momentum = 0.01}};
struct BatchNorm1d : detail::BatchNorm {
  explicit BatchNorm1d(std::int64_t features, const BatchNormOptions& options = {})
      : BatchNorm("BatchNorm1d", features, options) {}

  Tensor forward(const Tensor& x) const;
  Tensor operator()(const Tensor& x) const { return forward(x); }
};

// The same for images [batch, channels, height, width], each channel over the batch and its plane.
//
// **Torch counterpart.** torch.nn.BatchNorm2d.
// **Example.** nn::BatchNorm2d norm{64};
struct BatchNorm2d : detail::BatchNorm {
  explicit BatchNorm2d(std::int64_t features, const BatchNormOptions& options = {})
      : BatchNorm("BatchNorm2d", features, options) {}

  Tensor forward(const Tensor& x) const;
  Tensor operator()(const Tensor& x) const { return forward(x); }
};

}  // namespace lockstep::nn

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/nn/impl/batch_norm.ipp>
#endif
