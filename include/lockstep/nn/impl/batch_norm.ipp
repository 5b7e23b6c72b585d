// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/nn/batch_norm.hpp>
#include <lockstep/nn/layer.hpp>
#include <lockstep/ops/batch_norm.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>

namespace lockstep::detail {

LOCKSTEP_INLINE BatchNorm::BatchNorm(const char* layer, std::int64_t features,
                                     const nn::BatchNormOptions& options)
    : num_features(features), eps(options.eps), momentum(options.momentum) {
  check_layer_size(layer, "num_features", features);
  const TensorOptions like = parameter_options(layer, options.dtype, options.device);
  check<ValueError>(options.eps >= 0, layer, ": expected an eps of at least 0, got ", options.eps);
  check<ValueError>(options.momentum >= 0 && options.momentum <= 1, layer,
                    ": expected a momentum from 0 to 1, got ", options.momentum);
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

LOCKSTEP_INLINE Tensor BatchNorm::normalise(const char* layer, const char* expected, bool fits,
                                            const Tensor& x) const {
  check<ShapeError>(fits && x.size(1) == num_features, layer, ": expected an input of shape ",
                    expected, " with ", num_features, " channels, got ", x.sizes());
  const bool tracks = running_mean.defined();
  RunningStatistics running{running_mean, running_var, {}, momentum};
  if (training && tracks) running.batches = num_batches_tracked;
  return batch_norm_from(training ? synchronized.get() : nullptr, x, running, weight, bias,
                         training || !tracks, eps);
}

}  // namespace lockstep::detail

namespace lockstep::nn {

LOCKSTEP_INLINE Tensor BatchNorm1d::forward(const Tensor& x) const {
  return normalise("BatchNorm1d", "[batch, channels] or [batch, channels, length]",
                   x.dim() == 2 || x.dim() == 3, x);
}

LOCKSTEP_INLINE Tensor BatchNorm2d::forward(const Tensor& x) const {
  return normalise("BatchNorm2d", "[batch, channels, height, width]", x.dim() == 4, x);
}

}  // namespace lockstep::nn
