// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/nn/layer.hpp>
#include <lockstep/ops/group_norm.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>

namespace lockstep::nn {

struct GroupNormOptions {
  double eps = 1e-5;
  bool affine = true;
  Dtype dtype = Dtype::f32;
  Device device = {};
};

// Normalises each group of neighbouring channels in each element of a batch [batch, channels, …],
// then scales and shifts each channel.
//
// **Torch counterpart.** torch.nn.GroupNorm.
// **Threads and exceptions.** A ValueError for an invalid size or eps, a DtypeError for a dtype
// other than f32 and f64; forward throws what lockstep::group_norm throws.
// **Example.** nn::GroupNorm norm{8, 32};
struct GroupNorm : WeightAndBias {
  // weight: [channels], initially 1; bias: [channels], initially 0; both may be absent
  std::int64_t num_groups;
  std::int64_t num_channels;
  double eps;

  GroupNorm(std::int64_t groups, std::int64_t channels, const GroupNormOptions& options = {})
      : num_groups(groups), num_channels(channels), eps(options.eps) {
    detail::check_layer_size("GroupNorm", "num_groups", groups);
    detail::check_layer_size("GroupNorm", "num_channels", channels);
    check<ValueError>(channels % groups == 0, "GroupNorm: ", channels,
                      " channels cannot be divided into ", groups, " groups");
    const TensorOptions like =
        detail::parameter_options("GroupNorm", options.dtype, options.device);
    check<ValueError>(options.eps >= 0, "GroupNorm: expected an eps of at least 0, got ",
                      options.eps);
    if (!options.affine) return;
    weight = Parameter(ones({channels}, like));
    bias = Parameter(zeros({channels}, like));
  }

  Tensor forward(const Tensor& x) const {
    check<ShapeError>(x.dim() >= 2 && x.size(1) == num_channels,
                      "GroupNorm: expected an input of shape [batch, ", num_channels, ", …], got ",
                      x.sizes());
    return group_norm(x, num_groups, weight, bias, eps);
  }

  Tensor operator()(const Tensor& x) const { return forward(x); }
};

}  // namespace lockstep::nn
