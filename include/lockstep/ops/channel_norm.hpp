// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/saved.hpp>
#include <lockstep/config.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <array>
#include <cstddef>
#include <vector>

// What normalisations are made of: the statistics of each channel, and a linear function a channel.
// A channel is all elements with one index along dimension `dim`. Tensors of f32 and f64 are taken.
namespace lockstep::detail {

// out[c] = Σ a · (b − mean[c]) over channel c; linear in each of the three.
struct ChannelDotOp {
  static constexpr const char* name = "channel_dot";
  std::size_t dim;
  Saved a = {};
  Saved b = {};
  Saved mean = {};

  Tensor forward(const Tensor& left, const Tensor& right, const Tensor& centre);

  std::array<Tensor, 3> backward(const Backward& saved, const Tensor& grad) const;
};

// out = (x − mean[c]) · scale[c] + shift[c]; mean and shift may be undefined.
struct ChannelAffineOp {
  static constexpr const char* name = "channel_affine";
  std::size_t dim;
  Saved x = {};
  Saved mean = {};
  Saved scale = {};

  Tensor forward(const Tensor& values, const Tensor& centre, const Tensor& factor,
                 const Tensor& offset);

  std::array<Tensor, 4> backward(const Backward& saved, const Tensor& grad) const;
};

Tensor channel_affine(const Tensor& x, std::size_t dim, const Tensor& mean, const Tensor& scale,
                      const Tensor& shift);

// The mean of each channel and its variance, the mean of (x − mean)²; both 0 where it is empty.
struct ChannelMomentsOp {
  static constexpr const char* name = "channel_moments";
  std::size_t dim;
  double count = 0;
  Saved x = {};
  Saved mean = {};

  std::vector<Tensor> forward(const Tensor& values);

  // The variance does not change with the mean that it is taken about, so that its derivative is
  // 2 · (x − mean) / count.
  Tensor backward(const Backward& saved, const std::vector<Tensor>& grads) const;
};

struct Moments {
  Tensor mean;
  Tensor var;
};

Moments channel_moments(const Tensor& x, std::size_t dim);

// 1 / √(var + eps)
struct InverseDeviationOp {
  static constexpr const char* name = "inverse_deviation";
  double eps;
  Saved y = {};

  Tensor forward(const Tensor& var);

  Tensor backward(const Backward& saved, const Tensor& grad) const;
};

Tensor inverse_deviation(const Tensor& var, double eps);

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/channel_norm.ipp>
#endif
