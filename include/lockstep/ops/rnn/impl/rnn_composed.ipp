// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/kernels/rnn_kernels.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/rnn/rnn_composed.hpp>
#include <lockstep/ops/split.hpp>

#include <vector>

namespace lockstep::detail {

LOCKSTEP_INLINE RecurrentState composed_step(TanhCell, const Tensor& x, const Tensor& h,
                                             const RecurrentState& /*before*/) {
  return {tanh(x + h), {}};
}

LOCKSTEP_INLINE RecurrentState composed_step(ReluCell, const Tensor& x, const Tensor& h,
                                             const RecurrentState& /*before*/) {
  return {relu(x + h), {}};
}

LOCKSTEP_INLINE RecurrentState composed_step(LstmCell, const Tensor& x, const Tensor& h,
                                             const RecurrentState& before) {
  const std::vector<Tensor> gates = chunk(x + h, LstmCell::kGates, 1);
  const Tensor c = sigmoid(gates[1]) * before.c + sigmoid(gates[0]) * tanh(gates[2]);
  return {sigmoid(gates[3]) * tanh(c), c};
}

LOCKSTEP_INLINE RecurrentState composed_step(GruCell, const Tensor& x, const Tensor& h,
                                             const RecurrentState& before) {
  const std::vector<Tensor> from_x = chunk(x, GruCell::kGates, 1);
  const std::vector<Tensor> from_h = chunk(h, GruCell::kGates, 1);
  const Tensor r = sigmoid(from_x[0] + from_h[0]);
  const Tensor z = sigmoid(from_x[1] + from_h[1]);
  const Tensor n = tanh(from_x[2] + r * from_h[2]);
  return {(1 - z) * n + z * before.h, {}};
}

}  // namespace lockstep::detail
