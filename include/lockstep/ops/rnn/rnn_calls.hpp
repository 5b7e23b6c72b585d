// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>

#include <cstddef>
#include <cstdint>
#include <typeinfo>

// A recurrent layer in one direction as calls of a GPU's library, a whole sequence at once. Host
// devices have no such call; they compute step by step.
namespace lockstep::detail {

// x is [length, batch, features], y and its gradient [length, batch, width], states [batch, width].
// All are in the order of the sequence; `reverse` means that it is computed from the last time step
// to the first.
struct RecurrentGeometry {
  std::int64_t length, batch, features, width;
  bool reverse;
  bool training;  // backward will follow
  int math = 0;   // the library's code for how it computes, from RecurrentReserve
};

// The parameters of a layer, or their gradients: each contiguous, absent biases empty.
template <class T>
struct RecurrentParameters {
  View<T> ih, hh, bias_ih, bias_hh;
};

// Asks the library what a forward and its backward must agree on, whatever the program sets
// meanwhile: how it computes, and how much forward keeps. It answers at once, without a stream.
template <class T, class Cell>
struct RecurrentReserve {
  RecurrentGeometry g;
  bool has_bias_ih;
  bool has_bias_hh;
  std::size_t* bytes;  // forward keeps these for backward
  int* math;
};

template <class T, class Cell>
struct RecurrentForward {
  View<const T> x;
  View<const T> h0;
  View<const T> c0;  // like c, empty if the cell has none
  RecurrentParameters<const T> weights;
  View<T> y;
  View<T> h;  // the last h and c
  View<T> c;
  View<std::uint8_t> reserve;  // empty unless training
  RecurrentGeometry g;
};

// An empty gradient of a result means zeros. An empty gradient of an argument is not wanted; those
// of the weights are wanted together or not at all.
template <class T, class Cell>
struct RecurrentBackward {
  View<const T> x;
  View<const T> h0;
  View<const T> c0;
  RecurrentParameters<const T> weights;
  View<const T> y;
  View<const std::uint8_t> reserve;  // as forward left it
  View<const T> grad_y;
  View<const T> grad_h;
  View<const T> grad_c;
  View<T> grad_x;
  View<T> grad_h0;
  View<T> grad_c0;
  RecurrentParameters<T> grad_weights;
  RecurrentGeometry g;
};

// launch_call for a call that only GPUs have.
template <class Call>
void launch_gpu_call(const Stream& stream, const Call& call) {
  launch_bytes(stream, 1, &call, sizeof(Call), nullptr, kernel_slot<Call>, typeid(Call));
}

}  // namespace lockstep::detail
