// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/error.hpp>
#include <lockstep/nn/layer.hpp>
#include <lockstep/nn/linear.hpp>
#include <lockstep/ops/linear.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>

namespace lockstep::nn {

// A Linear that takes its number of inputs from the last dimension of its first input.
//
// Its parameters are uninitialised until the first forward, or until load_state_dict gives them a
// shape. From then on it behaves as a Linear; the first forward draws the values that Linear{in,
// out} would have drawn. The parameters are initialised in place, for all handles and copies of the
// layer.
//
// Call the module once before DataParallel, replicate or an optimiser gets it: they refuse
// uninitialised parameters.
//
// **Torch counterpart.** torch.nn.LazyLinear.
// **Threads and exceptions.** As Linear; a ShapeError for a first input without dimensions. Only
// one thread may call the first forward, which changes the layer.
// **Example.**
//   ls::nn::LazyLinear fc{10};
//   fc(ls::zeros({1, 784}));  // fc.weight is [10, 784]
struct LazyLinear : WeightAndBias {
  // weight: [out, in]; bias: [out], or absent
  explicit LazyLinear(std::int64_t out_features, const LinearOptions& options = {})
      : out_features_(out_features) {
    detail::check_layer_size("LazyLinear", "out_features", out_features);
    const TensorOptions like =
        detail::parameter_options("LazyLinear", options.dtype, options.device);
    weight = Parameter::uninitialized(like);
    if (options.bias) bias = Parameter::uninitialized(like);
  }

  Tensor forward(const Tensor& x) const {
    initialize(x);
    return lockstep::linear(x, weight, bias);
  }
  Tensor operator()(const Tensor& x) const { return forward(x); }

 private:
  // Initialises the parameters that are not: one of them may have been loaded.
  void initialize(const Tensor& x) const {
    if (weight.is_uninitialized()) {
      check<ShapeError>(x.dim() > 0,
                        "LazyLinear: expected a first input of at least 1 dimension, "
                        "got one without dimensions");
      const std::int64_t in_features = x.size(-1);
      detail::check_layer_size("LazyLinear", "in_features", in_features);
      weight.set_data(detail::first_weight({out_features_, in_features}, weight.options()));
    }
    if (bias.is_uninitialized()) bias.set_data(detail::first_bias(weight));
  }

  std::int64_t out_features_;
};

}  // namespace lockstep::nn
