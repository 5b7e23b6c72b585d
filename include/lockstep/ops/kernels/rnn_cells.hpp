// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/ops/kernels/pointwise_kernels.hpp>

#include <cstddef>
#include <tuple>

// The arithmetic of recurrent layers at each time step besides matrix products.
//
// A cell is a struct of functions on the numbers of one unit of one row:
//
//   kGates       how many gates a unit has: each gets a number from the input and one from the
//                state before; gates are the blocks of rows of weight_ih and weight_hh
//   kKept        how many numbers a unit keeps for backward, besides its states
//   kHasC        whether the state has a second part, c; then tanh(c) is a factor of h
//   kSplits      whether the gradients of the two numbers of a gate differ
//   Activations  what is applied to the gates
//   gate         what activation k is applied to: made of the gate's numbers and of gates before it
//   step         the state after a step, h without the factor tanh(c)
//   gradient     takes the gradient of the state after the step, with tanh(c) in place of c, gives
//                those of the gates' numbers, and leaves in `grad` the part of the gradient of the
//                state before that does not come through weight_hh
//
// Kept are the gates as they are applied, and after them, if the cell splits, what the state gives
// to the last gate.
//
// The order of the gates is torch's.
namespace lockstep::detail {

// The state of a unit, or its gradient.
template <class T>
struct UnitState {
  T h = {};
  T c = {};
};

// An activation is applied to the sum of a gate's numbers.
struct SummedGates {
  template <std::size_t k, class T>
  static T gate(const T* x, const T* h, const T* /*gates*/) {
    return x[k] + h[k];
  }
};

// h' = activation(x + h). `Gradient` turns the gradient of h', given h', into that of the sum.
template <template <class> class Activation, template <class> class Gradient>
struct ElmanCell : SummedGates {
  static constexpr const char* name = "RNN";
  static constexpr std::size_t kGates = 1;
  static constexpr std::size_t kKept = 0;
  static constexpr bool kHasC = false;
  static constexpr bool kSplits = false;

  template <class T>
  using Activations = std::tuple<Activation<T>>;

  template <class T>
  static UnitState<T> step(const T* gates, UnitState<T> /*before*/) {
    return {gates[0]};
  }
  template <class T>
  static void gradient(const T* /*kept*/, UnitState<T> /*before*/, UnitState<T> after,
                       UnitState<T>& grad, T* to_x, T* /*to_h*/) {
    to_x[0] = Gradient<T>{}(grad.h, after.h);
    grad.h = T{};
  }
};
struct TanhCell : ElmanCell<Tanh, TanhGradient> {};
struct ReluCell : ElmanCell<Relu, ReluGradient> {};

// c' = f · c + i · g and h' = o · tanh(c'), with gates i, f, g, o.
struct LstmCell : SummedGates {
  static constexpr const char* name = "LSTM";
  static constexpr std::size_t kGates = 4;
  static constexpr std::size_t kKept = 4;
  static constexpr bool kHasC = true;
  static constexpr bool kSplits = false;

  template <class T>
  using Activations = std::tuple<Sigmoid<T>, Sigmoid<T>, Tanh<T>, Sigmoid<T>>;

  template <class T>
  static UnitState<T> step(const T* gates, UnitState<T> before) {
    return {gates[3], gates[1] * before.c + gates[0] * gates[2]};
  }
  template <class T>
  static void gradient(const T* kept, UnitState<T> before, UnitState<T> after, UnitState<T>& grad,
                       T* to_x, T* /*to_h*/) {
    const T i = kept[0];
    const T f = kept[1];
    const T g = kept[2];
    const T o = kept[3];
    const T tanh_c = after.c;
    const T grad_c = grad.c + TanhGradient<T>{}(grad.h * o, tanh_c);
    to_x[0] = SigmoidGradient<T>{}(grad_c * g, i);
    to_x[1] = SigmoidGradient<T>{}(grad_c * before.c, f);
    to_x[2] = TanhGradient<T>{}(grad_c * i, g);
    to_x[3] = SigmoidGradient<T>{}(grad.h * tanh_c, o);
    grad = {T{}, grad_c * f};
  }
};

// h' = (1 − z) · n + z · h with gates r and z, and n = tanh(x + r · h): r scales what the state
// gives to n, with its bias.
struct GruCell {
  static constexpr const char* name = "GRU";
  static constexpr std::size_t kGates = 3;
  static constexpr std::size_t kKept = 4;
  static constexpr bool kHasC = false;
  static constexpr bool kSplits = true;

  template <class T>
  using Activations = std::tuple<Sigmoid<T>, Sigmoid<T>, Tanh<T>>;

  template <std::size_t k, class T>
  static T gate(const T* x, const T* h, const T* gates) {
    return x[k] + (k == 2 ? gates[0] * h[k] : h[k]);
  }
  template <class T>
  static UnitState<T> step(const T* gates, UnitState<T> before) {
    const T z = gates[1];
    return {(T{1} - z) * gates[2] + z * before.h};
  }
  template <class T>
  static void gradient(const T* kept, UnitState<T> before, UnitState<T> /*after*/,
                       UnitState<T>& grad, T* to_x, T* to_h) {
    const T r = kept[0];
    const T z = kept[1];
    const T n = kept[2];
    to_x[2] = TanhGradient<T>{}(grad.h * (T{1} - z), n);
    to_x[1] = to_h[1] = SigmoidGradient<T>{}(grad.h * (before.h - n), z);
    to_x[0] = to_h[0] = SigmoidGradient<T>{}(to_x[2] * kept[3], r);
    to_h[2] = to_x[2] * r;
    grad.h *= z;
  }
};

}  // namespace lockstep::detail
