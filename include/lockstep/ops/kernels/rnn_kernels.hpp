// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/ops/kernels/pointwise_kernels.hpp>

#include <cmath>
#include <cstddef>

// What recurrent layers do at each time step besides matrix products, in one pass over the units.
//
// A cell is a struct of functions on the numbers of one unit of one row:
//
//   kGates     how many gates a unit has: each gets a number from the input and one from the state
//              before; gates are the blocks of rows of weight_ih and weight_hh
//   kKept      how many numbers a unit keeps for backward, besides its states
//   kHasC      whether the state has a second part, c
//   kSplits    whether the gradients of the two numbers of a gate differ
//   step       the state after a step; fills `kept`
//   gradient   takes the gradient of the state after the step, gives those of the gates' numbers,
//              and leaves in `grad` the part of the gradient of the state before that does not come
//              through weight_hh
//
// The order of the gates is torch's.
namespace lockstep::detail {

// The state of a unit, or its gradient.
template <class T>
struct UnitState {
  T h = {};
  T c = {};
};

template <class T>
struct TanhDerivative {  // from the result
  LOCKSTEP_HD T operator()(T y) const { return T{1} - y * y; }
};
template <class T>
struct SigmoidDerivative {
  LOCKSTEP_HD T operator()(T y) const { return y * (T{1} - y); }
};

// h' = tanh(x + h)
struct TanhCell {
  static constexpr const char* name = "RNN";
  static constexpr std::size_t kGates = 1;
  static constexpr std::size_t kKept = 0;
  static constexpr bool kHasC = false;
  static constexpr bool kSplits = false;

  template <class T>
  LOCKSTEP_HD static UnitState<T> step(const T* x, const T* h, UnitState<T> /*before*/,
                                       T* /*kept*/) {
    return {std::tanh(x[0] + h[0])};
  }
  template <class T>
  LOCKSTEP_HD static void gradient(const T* /*kept*/, UnitState<T> /*before*/, UnitState<T> after,
                                   UnitState<T>& grad, T* to_x, T* /*to_h*/) {
    to_x[0] = grad.h * TanhDerivative<T>{}(after.h);
    grad.h = T{};
  }
};

// h' = relu(x + h)
struct ReluCell {
  static constexpr const char* name = "RNN";
  static constexpr std::size_t kGates = 1;
  static constexpr std::size_t kKept = 0;
  static constexpr bool kHasC = false;
  static constexpr bool kSplits = false;

  template <class T>
  LOCKSTEP_HD static UnitState<T> step(const T* x, const T* h, UnitState<T> /*before*/,
                                       T* /*kept*/) {
    return {Relu<T>{}(x[0] + h[0])};
  }
  template <class T>
  LOCKSTEP_HD static void gradient(const T* /*kept*/, UnitState<T> /*before*/, UnitState<T> after,
                                   UnitState<T>& grad, T* to_x, T* /*to_h*/) {
    to_x[0] = ReluGradient<T>{}(grad.h, after.h);
    grad.h = T{};
  }
};

// c' = f · c + i · g and h' = o · tanh(c'), with gates i, f, g, o: kept as they are applied.
struct LstmCell {
  static constexpr const char* name = "LSTM";
  static constexpr std::size_t kGates = 4;
  static constexpr std::size_t kKept = 4;
  static constexpr bool kHasC = true;
  static constexpr bool kSplits = false;

  template <class T>
  LOCKSTEP_HD static UnitState<T> step(const T* x, const T* h, UnitState<T> before, T* kept) {
    const Sigmoid<T> sigmoid;
    const T i = kept[0] = sigmoid(x[0] + h[0]);
    const T f = kept[1] = sigmoid(x[1] + h[1]);
    const T g = kept[2] = std::tanh(x[2] + h[2]);
    const T o = kept[3] = sigmoid(x[3] + h[3]);
    const T c = f * before.c + i * g;
    return {o * std::tanh(c), c};
  }
  template <class T>
  LOCKSTEP_HD static void gradient(const T* kept, UnitState<T> before, UnitState<T> after,
                                   UnitState<T>& grad, T* to_x, T* /*to_h*/) {
    const SigmoidDerivative<T> slope;
    const T i = kept[0];
    const T f = kept[1];
    const T g = kept[2];
    const T o = kept[3];
    const T tanh_c = std::tanh(after.c);
    const T grad_c = grad.c + grad.h * o * TanhDerivative<T>{}(tanh_c);
    to_x[0] = grad_c * g * slope(i);
    to_x[1] = grad_c * before.c * slope(f);
    to_x[2] = grad_c * i * TanhDerivative<T>{}(g);
    to_x[3] = grad.h * tanh_c * slope(o);
    grad = {T{}, grad_c * f};
  }
};

// h' = (1 − z) · n + z · h with gates r and z, and n = tanh(x + r · h): r scales what the state
// gives to n, with its bias. Kept are r, z and n as they are applied, and what the state gives to
// n.
struct GruCell {
  static constexpr const char* name = "GRU";
  static constexpr std::size_t kGates = 3;
  static constexpr std::size_t kKept = 4;
  static constexpr bool kHasC = false;
  static constexpr bool kSplits = true;

  template <class T>
  LOCKSTEP_HD static UnitState<T> step(const T* x, const T* h, UnitState<T> before, T* kept) {
    const Sigmoid<T> sigmoid;
    const T r = kept[0] = sigmoid(x[0] + h[0]);
    const T z = kept[1] = sigmoid(x[1] + h[1]);
    const T n = kept[2] = std::tanh(x[2] + r * h[2]);
    kept[3] = h[2];
    return {(T{1} - z) * n + z * before.h};
  }
  template <class T>
  LOCKSTEP_HD static void gradient(const T* kept, UnitState<T> before, UnitState<T> /*after*/,
                                   UnitState<T>& grad, T* to_x, T* to_h) {
    const SigmoidDerivative<T> slope;
    const T r = kept[0];
    const T z = kept[1];
    const T n = kept[2];
    to_x[2] = grad.h * (T{1} - z) * TanhDerivative<T>{}(n);
    to_x[1] = to_h[1] = grad.h * (before.h - n) * slope(z);
    to_x[0] = to_h[0] = to_x[2] * kept[3] * slope(r);
    to_h[2] = to_x[2] * r;
    grad.h *= z;
  }
};

// The length of an array for n numbers; there are none of length 0.
template <std::size_t n>
inline constexpr std::size_t room_for = n == 0 ? 1 : n;

// One time step for all units of all rows. Matrices are [rows, n · width], where n is 1 for a
// state; number k of unit j is in column k · width + j.
template <class T, class Cell>
struct RecurrentKernel {
  View<const T> from_input;
  View<const T> from_hidden;
  View<const T> h_before;
  View<const T> c_before;  // empty if the cell has none, as c
  View<T> kept;
  View<T> h;
  View<T> c;
  std::size_t width;

  LOCKSTEP_HD void operator()(std::size_t i) const {
    const std::size_t row = i / width;
    const std::size_t unit = i % width;
    T x[Cell::kGates];
    T y[Cell::kGates];
    T keep[room_for<Cell::kKept>];
    for (std::size_t k = 0; k < Cell::kGates; ++k) {
      const std::size_t at = (row * Cell::kGates + k) * width + unit;
      x[k] = from_input[at];
      y[k] = from_hidden[at];
    }
    UnitState<T> before{h_before[i]};
    if constexpr (Cell::kHasC) before.c = c_before[i];
    const UnitState<T> after = Cell::step(x, y, before, keep);
    for (std::size_t k = 0; k != Cell::kKept; ++k) {
      kept[(row * Cell::kKept + k) * width + unit] = keep[k];
    }
    h[i] = after.h;
    if constexpr (Cell::kHasC) c[i] = after.c;
  }
};

// The same backwards. grad_h and grad_c hold the gradient of the state after the step, to which
// grad_y is added. They become the part of the gradient of the state before that does not come
// through weight_hh.
template <class T, class Cell>
struct RecurrentGradKernel {
  View<const T> kept;
  View<const T> h_before;
  View<const T> c_before;
  View<const T> h;
  View<const T> c;
  View<const T> grad_y;  // or empty
  View<T> grad_h;
  View<T> grad_c;
  View<T> to_input;   // the gradients of from_input
  View<T> to_hidden;  // and of from_hidden; empty if they are the same
  std::size_t width;

  LOCKSTEP_HD void operator()(std::size_t i) const {
    const std::size_t row = i / width;
    const std::size_t unit = i % width;
    T keep[room_for<Cell::kKept>];
    for (std::size_t k = 0; k != Cell::kKept; ++k) {
      keep[k] = kept[(row * Cell::kKept + k) * width + unit];
    }
    UnitState<T> before{h_before[i]};
    UnitState<T> after{h[i]};
    UnitState<T> grad{grad_h[i]};
    if (grad_y.size > 0) grad.h += grad_y[i];
    if constexpr (Cell::kHasC) {
      before.c = c_before[i];
      after.c = c[i];
      grad.c = grad_c[i];
    }
    T x[Cell::kGates];
    T y[Cell::kGates];
    Cell::gradient(keep, before, after, grad, x, y);
    for (std::size_t k = 0; k < Cell::kGates; ++k) {
      const std::size_t at = (row * Cell::kGates + k) * width + unit;
      to_input[at] = x[k];
      if constexpr (Cell::kSplits) to_hidden[at] = y[k];
    }
    grad_h[i] = grad.h;
    if constexpr (Cell::kHasC) grad_c[i] = grad.c;
  }
};

}  // namespace lockstep::detail
