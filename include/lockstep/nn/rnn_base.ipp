// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/nn/init.hpp>
#include <lockstep/nn/layer.hpp>
#include <lockstep/nn/rnn_base.hpp>
#include <lockstep/ops/dropout.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>
#include <lockstep/warning.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

namespace lockstep::detail {

LOCKSTEP_INLINE RecurrentLayers::RecurrentLayers(const char* layer, std::int64_t inputs,
                                                 std::int64_t hidden, std::size_t gates,
                                                 const nn::RecurrentOptions& options)
    : input_size(inputs),
      hidden_size(hidden),
      num_layers(options.num_layers),
      batch_first(options.batch_first),
      dropout(options.dropout),
      bidirectional(options.bidirectional) {
  check_layer_size(layer, "input_size", inputs);
  check_layer_size(layer, "hidden_size", hidden);
  check_layer_size(layer, "num_layers", num_layers);
  check<ValueError>(
      hidden <= std::numeric_limits<std::int64_t>::max() / static_cast<std::int64_t>(2 * gates),
      layer, ": a hidden_size of ", hidden, " is too large");
  check_layer_dtype(layer, options.dtype);
  check_probability(layer, dropout);
  check<ValueError>(options.proj_size == 0, layer, ": expected proj_size = 0, got ",
                    options.proj_size,
                    ": projections of the state are not supported; put an nn::Linear behind");
  if (dropout > 0 && num_layers == 1) {
    warn(str(layer, ": dropout option adds dropout after all but last recurrent layer, so ",
             "non-zero dropout expects num_layers greater than 1, but got dropout=", dropout,
             " and num_layers=1"));
  }
  const TensorOptions like{.dtype = options.dtype, .device = options.device};
  const double bound = 1 / std::sqrt(static_cast<double>(hidden));
  const auto first = [&](const Shape& shape) {
    const Tensor values = empty(shape, like);
    nn::init::uniform_(values, -bound, bound);
    return Parameter(values);
  };
  const std::int64_t rows = static_cast<std::int64_t>(gates) * hidden;
  for (std::int64_t i = 0; i < num_layers * directions(); ++i) {
    nn::RecurrentWeights own;
    own.weight_ih = first({rows, i < directions() ? inputs : directions() * hidden});
    own.weight_hh = first({rows, hidden});
    if (options.bias) own.bias_ih = first({rows});
    if (options.bias) own.bias_hh = first({rows});
    weights.push_back(own);
  }
}

LOCKSTEP_INLINE std::string RecurrentLayers::suffix_of(std::size_t i) const {
  const std::size_t count = bidirectional ? 2 : 1;
  return "_l" + std::to_string(i / count) + (i % count == 1 ? "_reverse" : "");
}

LOCKSTEP_INLINE Tensor RecurrentLayers::first_states(const char* layer, const char* name,
                                                     const Tensor& states, const Tensor& input,
                                                     bool batched, std::int64_t batch) const {
  if (!states.defined()) return states;
  const std::int64_t count = num_layers * directions();
  const Shape expected = batched ? Shape{count, batch, hidden_size} : Shape{count, hidden_size};
  check<ShapeError>(states.sizes() == expected, layer, ": expected ", name, " of shape ", expected,
                    " for an input of shape ", input.sizes(), ", got ", states.sizes());
  return batched ? states : unsqueeze(states, 1);
}

}  // namespace lockstep::detail
