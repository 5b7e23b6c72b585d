// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/nn/layer.hpp>
#include <lockstep/ops/batch_norm.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/tensor/creation.hpp>
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

// What the BatchNorms have in common: all but the shapes that forward takes.
struct BatchNorm {
  Parameter weight;            // [num_features], first 1, or absent
  Parameter bias;              // [num_features], first 0, or absent
  Buffer running_mean;         // [num_features], first 0, or absent
  Buffer running_var;          // [num_features], first 1, or absent
  Buffer num_batches_tracked;  // an i64 without dimensions, or absent
  std::int64_t num_features;
  double eps;
  double momentum;
  bool training = true;
  // Where training gets its statistics; none: from the input. See nn::convert_sync_batchnorm.
  std::shared_ptr<const StatisticsSource> synchronized = {};

  template <class Self, class Visitor>
  static void visit_members(Self& self, Visitor&& visit) {
    visit("weight", self.weight);
    visit("bias", self.bias);
    visit("running_mean", self.running_mean);
    visit("running_var", self.running_var);
    visit("num_batches_tracked", self.num_batches_tracked);
    visit("training", self.training);
  }

 protected:
  BatchNorm(const char* layer, std::int64_t features, const nn::BatchNormOptions& options)
      : num_features(features), eps(options.eps), momentum(options.momentum) {
    check_layer_size(layer, "num_features", features);
    check_layer_dtype(layer, options.dtype);
    check<ValueError>(options.eps >= 0, layer, ": expected an eps of at least 0, got ",
                      options.eps);
    check<ValueError>(options.momentum >= 0 && options.momentum <= 1, layer,
                      ": expected a momentum from 0 to 1, got ", options.momentum);
    const TensorOptions like{.dtype = options.dtype, .device = options.device};
    if (options.affine) {
      weight = Parameter(ones({features}, like));
      bias = Parameter(zeros({features}, like));
    }
    if (options.track_running_stats) {
      running_mean = Buffer(zeros({features}, like));
      running_var = Buffer(ones({features}, like));
      num_batches_tracked = Buffer(zeros({}, {.dtype = Dtype::i64, .device = options.device}));
    }
  }

  Tensor normalise(const char* layer, const char* expected, bool fits, const Tensor& x) const {
    check<ShapeError>(fits && x.size(1) == num_features, layer, ": expected an input of shape ",
                      expected, " with ", num_features, " channels, got ", x.sizes());
    const bool tracks = running_mean.defined();
    const Tensor y = batch_norm_from(training ? synchronized.get() : nullptr, x, running_mean,
                                     running_var, weight, bias, training || !tracks, momentum, eps);
    if (training && tracks) {
      const NoGradGuard guard;
      num_batches_tracked.add_(ones({}, num_batches_tracked.options()));
    }
    return y;
  }
};

}  // namespace lockstep::detail

namespace lockstep::nn {

// Normalises each feature of x [batch, features] or [batch, features, length] over the batch: in
// training with the batch's own statistics, which the running ones follow, else with those.
//
// Within replicas each one normalises its own rows, and the first one's running statistics stay;
// see ReplicaBuffers for statistics of the whole batch, and convert_sync_batchnorm for those over
// several ranks. A copy shares parameters and buffers with the original: they are handles.
//
// **Torch counterpart.** torch.nn.BatchNorm1d; names and order of the state are its. Without
// track_running_stats there are no buffers, and the batch's statistics are always used.
// **Threads and exceptions.** A ValueError for a size, eps or momentum that makes no sense, a
// DtypeError for a dtype other than f32 and f64; a ShapeError for any other input, and else as
// lockstep::batch_norm.
// **Example.** nn::BatchNorm1d norm{128, {.momentum = 0.01}};
struct BatchNorm1d : detail::BatchNorm {
  explicit BatchNorm1d(std::int64_t features, const BatchNormOptions& options = {})
      : BatchNorm("BatchNorm1d", features, options) {}

  Tensor forward(const Tensor& x) const {
    return normalise("BatchNorm1d", "[batch, channels] or [batch, channels, length]",
                     x.dim() == 2 || x.dim() == 3, x);
  }
  Tensor operator()(const Tensor& x) const { return forward(x); }
};

// The same for images [batch, channels, height, width], each channel over the batch and its plane.
//
// **Torch counterpart.** torch.nn.BatchNorm2d.
// **Example.** nn::BatchNorm2d norm{64};
struct BatchNorm2d : detail::BatchNorm {
  explicit BatchNorm2d(std::int64_t features, const BatchNormOptions& options = {})
      : BatchNorm("BatchNorm2d", features, options) {}

  Tensor forward(const Tensor& x) const {
    return normalise("BatchNorm2d", "[batch, channels, height, width]", x.dim() == 4, x);
  }
  Tensor operator()(const Tensor& x) const { return forward(x); }
};

}  // namespace lockstep::nn
