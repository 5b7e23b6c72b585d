// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/nn/init.hpp>
#include <lockstep/nn/layer.hpp>
#include <lockstep/nn/rnn.hpp>
#include <lockstep/ops/cat.hpp>
#include <lockstep/ops/dropout.hpp>
#include <lockstep/ops/kernels/rnn_kernels.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/ops/rnn.hpp>
#include <lockstep/ops/rnn/rnn_composed.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>
#include <lockstep/warning.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <string>
#include <tuple>
#include <vector>

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
  check<ValueError>(num_layers <= static_cast<std::int64_t>(weights.max_size() / 2), layer,
                    ": num_layers = ", num_layers, " is too large");
  const TensorOptions like = parameter_options(layer, options.dtype, options.device);
  check_probability(layer, dropout);
  check<ValueError>(options.proj_size == 0, layer, ": expected proj_size = 0, got ",
                    options.proj_size,
                    ": projections of the state are not supported; put an nn::Linear behind");
  if (dropout > 0 && num_layers == 1) {
    warn(str(layer, ": dropout option adds dropout after all but last recurrent layer, so ",
             "non-zero dropout expects num_layers greater than 1, but got dropout=", dropout,
             " and num_layers=1"));
  }
  const double bound = 1 / std::sqrt(static_cast<double>(hidden));
  const auto first = [&](const Shape& shape) {
    const Tensor values = empty(shape, like);
    nn::init::uniform_(values, -bound, bound);
    return Parameter(values);
  };
  const std::int64_t rows = static_cast<std::int64_t>(gates) * hidden;
  try {
    weights.reserve(static_cast<std::size_t>(num_layers * directions()));
  } catch (const std::bad_alloc&) {
    fail<OutOfMemoryError>(layer, ": no memory for num_layers = ", num_layers);
  }
  for (std::int64_t i = 0; i < num_layers * directions(); ++i) {
    nn::RecurrentWeights own;
    own.weight_ih = first({rows, i < directions() ? inputs : directions() * hidden});
    own.weight_hh = first({rows, hidden});
    if (options.bias) own.bias_ih = first({rows});
    if (options.bias) own.bias_hh = first({rows});
    weights.push_back(own);
  }
}

LOCKSTEP_INLINE RecurrentLayers::Results RecurrentLayers::run(const RecurrentCell& cell,
                                                              const Tensor& input, const Tensor& h0,
                                                              const Tensor& c0) const {
  const bool batched = input.dim() == 3;
  check<ShapeError>((batched || input.dim() == 2) && input.size(-1) == input_size, cell.name,
                    ": expected an input of shape ",
                    batch_first ? "[batch, length, " : "[length, batch, ", input_size,
                    "] or [length, ", input_size, "], got ", input.sizes());
  check<ValueError>(weights.size() == static_cast<std::size_t>(num_layers * directions()),
                    cell.name, ": expected the weights of ", num_layers, " layers in ",
                    directions(), " directions, got ", weights.size());
  Tensor x = input;
  if (!batched) {
    x = unsqueeze(input, 1);
  } else if (batch_first) {
    x = transpose(input, 0, 1);
  }
  check<ShapeError>(x.size(0) > 0, cell.name,
                    ": expected a sequence of at least one time step, got an input of shape ",
                    input.sizes());
  const Tensor h_start = first_states(cell.name, "h_0", h0, input, batched, x.size(1));
  const Tensor c_start = first_states(cell.name, "c_0", c0, input, batched, x.size(1));
  std::vector<Tensor> h;
  std::vector<Tensor> c;
  for (std::size_t i = 0; i < weights.size();) {
    if (i > 0) x = lockstep::dropout(x, dropout, training);
    std::vector<Tensor> y;
    for (std::int64_t direction = 0; direction < directions(); ++direction, ++i) {
      const nn::RecurrentWeights& own = weights[i];
      const auto part = [i](const Tensor& states) {
        return states.defined() ? select(states, 0, static_cast<std::int64_t>(i)) : states;
      };
      const std::vector<Tensor> results =
          cell.over_sequence({{x, part(h_start), part(c_start), own.weight_ih, own.weight_hh,
                               own.bias_ih, own.bias_hh}},
                             direction == 1);
      y.push_back(results[0]);
      h.push_back(results[1]);
      if (results.size() == 3) c.push_back(results[2]);
    }
    x = y.size() == 1 ? y[0] : cat(y, 2);
  }
  Results results{x, stack(h), c.empty() ? Tensor() : stack(c)};
  if (!batched) {
    for (Tensor* tensor : {&results.y, &results.h, &results.c}) {
      if (tensor->defined()) *tensor = squeeze(*tensor, 1);
    }
  } else if (batch_first) {
    results.y = transpose(results.y, 0, 1);
  }
  return results;
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

namespace lockstep::nn {

LOCKSTEP_INLINE RNN::RNN(std::int64_t inputs, std::int64_t hidden, const RNNOptions& options)
    : RecurrentLayers("RNN", inputs, hidden, detail::TanhCell::kGates,
                      {.num_layers = options.num_layers,
                       .bias = options.bias,
                       .batch_first = options.batch_first,
                       .dropout = options.dropout,
                       .bidirectional = options.bidirectional,
                       .dtype = options.dtype,
                       .device = options.device}),
      nonlinearity(options.nonlinearity) {}

LOCKSTEP_INLINE std::tuple<Tensor, Tensor> RNN::forward(const Tensor& x, const Tensor& h) const {
  const Results results = nonlinearity == RNNNonlinearity::relu
                              ? run(detail::kRecurrentCell<detail::ReluCell>, x, h)
                              : run(detail::kRecurrentCell<detail::TanhCell>, x, h);
  return {results.y, results.h};
}

LOCKSTEP_INLINE LSTM::LSTM(std::int64_t inputs, std::int64_t hidden,
                           const RecurrentOptions& options)
    : RecurrentLayers("LSTM", inputs, hidden, detail::LstmCell::kGates, options) {}

LOCKSTEP_INLINE std::tuple<Tensor, std::tuple<Tensor, Tensor>> LSTM::forward(
    const Tensor& x, const std::tuple<Tensor, Tensor>& state) const {
  const Results results =
      run(detail::kRecurrentCell<detail::LstmCell>, x, std::get<0>(state), std::get<1>(state));
  return {results.y, {results.h, results.c}};
}

LOCKSTEP_INLINE GRU::GRU(std::int64_t inputs, std::int64_t hidden, const RecurrentOptions& options)
    : RecurrentLayers("GRU", inputs, hidden, detail::GruCell::kGates, options) {}

LOCKSTEP_INLINE std::tuple<Tensor, Tensor> GRU::forward(const Tensor& x, const Tensor& h) const {
  const Results results = run(detail::kRecurrentCell<detail::GruCell>, x, h);
  return {results.y, results.h};
}

}  // namespace lockstep::nn
