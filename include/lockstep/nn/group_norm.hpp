// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/nn/layer.hpp>
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

// Normalises each group of neighbouring channels of each element of a batch [batch, channels, …],
// then scales and shifts each channel.
//
// A copy shares its parameters with the original: they are handles.
//
// **Torch counterpart.** torch.nn.GroupNorm.
// **Threads and exceptions.** A ValueError for a size or eps that makes no sense, a DtypeError for
// a dtype other than f32 and f64; forward's are those of lockstep::group_norm.
// **Example.** nn::GroupNorm norm{8, 32};
struct GroupNorm : WeightAndBias {
  // weight: [channels], first 1; bias: [channels], first 0; both may be absent
  std::int64_t num_groups;
  std::int64_t num_channels;
  double eps;

  GroupNorm(std::int64_t groups, std::int64_t channels, const GroupNormOptions& options = {});

  Tensor forward(const Tensor& x) const;
  Tensor operator()(const Tensor& x) const { return forward(x); }
};

}  // namespace lockstep::nn

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/nn/impl/group_norm.ipp>
#endif
