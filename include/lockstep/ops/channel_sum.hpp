// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/saved.hpp>
#include <lockstep/config.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>

namespace lockstep::detail {

// The gradient of a bias that was added along dimension `dim`: the sum over all other dimensions.
struct ChannelSum {
  static constexpr const char* name = "channel_sum";
  std::size_t dim;
  const Tensor* slot = nullptr;  // for the result
  Shape shape = {};

  Tensor forward(const Tensor& tensor);

  Tensor backward(const Backward&, const Tensor& grad) const;
};

Tensor channel_sum(const Tensor& tensor, std::size_t dim, const Tensor& slot = {});

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/channel_sum.ipp>
#endif
