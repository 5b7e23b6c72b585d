// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/autocast.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/cat.hpp>
#include <lockstep/ops/kernels/rnn_kernels.hpp>
#include <lockstep/ops/linear.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/split.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

// Recurrent layers by elementary operations, for gradients that are themselves differentiated:
// slow, and differentiable any number of times.
namespace lockstep::detail {

// The arguments of a recurrent layer in one direction: a sequence x [length, batch, features], the
// initial states [batch, width], weights and biases. c0 and the biases may be undefined.
struct RecurrentArguments {
  enum Argument : std::size_t { x, h0, c0, weight_ih, weight_hh, bias_ih, bias_hh, count };
  std::array<Tensor, count> tensors;
  const Tensor& operator[](Argument which) const { return tensors[which]; }
};

struct RecurrentState {
  Tensor h;
  Tensor c;
};

// h and c after a step, from the contributions of the input and the state to the gates.
inline RecurrentState composed_step(TanhCell, const Tensor& x, const Tensor& h,
                                    const RecurrentState& /*before*/) {
  return {tanh(x + h), {}};
}

inline RecurrentState composed_step(ReluCell, const Tensor& x, const Tensor& h,
                                    const RecurrentState& /*before*/) {
  return {relu(x + h), {}};
}

inline RecurrentState composed_step(LstmCell, const Tensor& x, const Tensor& h,
                                    const RecurrentState& before) {
  const std::vector<Tensor> gates = chunk(x + h, LstmCell::kGates, 1);
  const Tensor c = sigmoid(gates[1]) * before.c + sigmoid(gates[0]) * tanh(gates[2]);
  return {sigmoid(gates[3]) * tanh(c), c};
}

inline RecurrentState composed_step(GruCell, const Tensor& x, const Tensor& h,
                                    const RecurrentState& before) {
  const std::vector<Tensor> from_x = chunk(x, GruCell::kGates, 1);
  const std::vector<Tensor> from_h = chunk(h, GruCell::kGates, 1);
  const Tensor r = sigmoid(from_x[0] + from_h[0]);
  const Tensor z = sigmoid(from_x[1] + from_h[1]);
  const Tensor n = tanh(from_x[2] + r * from_h[2]);
  return {(1 - z) * n + z * before.h, {}};
}

// y [length, batch, width], and the last h and, if the cell has one, c.
template <class Cell>
std::vector<Tensor> recurrent_composed(const RecurrentArguments& arguments, bool reverse) {
  using A = RecurrentArguments;
  const AutocastGuard off(false);
  const Tensor from_input = linear(arguments[A::x], arguments[A::weight_ih], arguments[A::bias_ih]);
  const std::int64_t length = from_input.size(0);
  const std::vector<Tensor> steps = chunk(from_input, length, 0);  // its gradient is one cat
  std::vector<Tensor> y(static_cast<std::size_t>(length));
  RecurrentState state{arguments[A::h0], arguments[A::c0]};
  for (std::int64_t step = 0; step < length; ++step) {
    const auto t = static_cast<std::size_t>(reverse ? length - 1 - step : step);
    const Tensor from_hidden = linear(state.h, arguments[A::weight_hh], arguments[A::bias_hh]);
    state = composed_step(Cell{}, squeeze(steps[t], 0), from_hidden, state);
    y[t] = state.h;
  }
  if constexpr (Cell::kHasC) {
    return {stack(y), state.h, state.c};
  } else {
    return {stack(y), state.h};
  }
}

}  // namespace lockstep::detail
