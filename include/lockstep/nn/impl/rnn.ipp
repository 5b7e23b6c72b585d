// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/nn/rnn.hpp>
#include <lockstep/nn/rnn_base.hpp>
#include <lockstep/ops/kernels/rnn_kernels.hpp>
#include <lockstep/ops/rnn.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>
#include <tuple>

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
