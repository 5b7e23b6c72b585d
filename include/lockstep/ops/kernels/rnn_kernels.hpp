// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/ops/kernels/blocks.hpp>
#include <lockstep/ops/kernels/rnn_cells.hpp>
#include <lockstep/ops/kernels/vector_math.hpp>

#include <algorithm>
#include <cstddef>
#include <tuple>
#include <utility>

// What recurrent layers do at each time step besides matrix products, in one pass over the units.
namespace lockstep::detail {

// The length of an array for n numbers; there are none of length 0.
template <std::size_t n>
inline constexpr std::size_t room_for = n == 0 ? 1 : n;

// Calls f(row, first unit, how many) for blocks of the units of each row.
template <class F>
void for_each_block(std::size_t count, std::size_t width, const F& f) {
  for (std::size_t row = 0; row * width < count; ++row) {
    for (std::size_t unit = 0; unit < width; unit += kBlockSize) {
      f(row, unit, std::min(width - unit, kBlockSize));
    }
  }
}

// Asks for a block of the next row: the gates of a row lie too far apart for a processor to foresee
// them. (A view may be empty, or end before.)
template <bool writes, class T>
void fetch_block(View<T> all, std::size_t begin) {
  constexpr std::size_t kLine = 64 / sizeof(T);
  if (begin + kBlockSize > all.size) return;
  for (std::size_t i = 0; i < kBlockSize; i += kLine) {
    __builtin_prefetch(all.data + begin + i, writes ? 1 : 0);
  }
}

// One time step for all units of all rows. Matrices are [rows, n · width], where n is 1 for a
// state; number k of unit j is in column k · width + j. `kept` may be `from_input`, if there are as
// many numbers.
template <class T, class Cell>
struct RecurrentStep {
  View<const T> from_input;
  View<const T> from_hidden;
  View<const T> h_before;
  View<const T> c_before;  // empty if the cell has none, as c
  View<T> kept;
  View<T> h;
  View<T> c;
  std::size_t width;

  void operator()() const {
    for_each_block(h.size, width, [this](std::size_t row, std::size_t unit, std::size_t n) {
      block(row, unit, n, std::make_index_sequence<Cell::kGates>());
    });
  }

 private:
  template <std::size_t k>
  using Activation = std::tuple_element_t<k, typename Cell::template Activations<T>>;

  template <std::size_t... k>
  void block(std::size_t row, std::size_t unit, std::size_t n,
             std::index_sequence<k...> all) const {
    const std::size_t i = row * width + unit;
    const std::size_t next = row + 1;
    (fetch_block<false>(from_input, (next * Cell::kGates + k) * width + unit), ...);
    for (std::size_t l = 0; l != Cell::kKept; ++l) {
      fetch_block<true>(kept, (next * Cell::kKept + l) * width + unit);
    }
    const BlockIn<T> x[] = {{from_input.data + (row * Cell::kGates + k) * width + unit, n}...};
    const BlockIn<T> y[] = {{from_hidden.data + (row * Cell::kGates + k) * width + unit, n}...};
    const BlockOut<T> gates[] = {
        {Cell::kKept == 0 ? nullptr : kept.data + (row * Cell::kKept + k) * width + unit, n}...};
    (activate_block<k>(x, y, gates, n, all), ...);
    if constexpr (Cell::kSplits) {
      std::copy_n(y[Cell::kGates - 1].data, n,
                  kept.data + (row * Cell::kKept + Cell::kGates) * width + unit);
    }

    const BlockIn<T> old_h(h_before.data + i, n);
    const BlockIn<T> old_c(Cell::kHasC ? c_before.data + i : nullptr, n);
    const BlockOut<T> new_h(h.data + i, n);
    T new_c[kBlockSize];
    LOCKSTEP_INDEPENDENT
    for (std::size_t j = 0; j < kBlockSize; ++j) {
      const T applied[] = {gates[k].data[j]...};
      const UnitState<T> after = Cell::step(applied, {old_h.data[j], old_c.data[j]});
      new_h.data[j] = after.h;
      new_c[j] = after.c;
    }
    if constexpr (Cell::kHasC) {
      std::copy_n(new_c, n, c.data + i);
      vectorized::tanh(new_c, new_c, n);
      LOCKSTEP_INDEPENDENT
      for (std::size_t j = 0; j < kBlockSize; ++j) new_h.data[j] *= new_c[j];
    }
  }

  template <std::size_t k, std::size_t... all>
  static void activate_block(const BlockIn<T>* x, const BlockIn<T>* y, const BlockOut<T>* gates,
                             std::size_t n, std::index_sequence<all...>) {
    T* const to = gates[k].data;
    LOCKSTEP_INDEPENDENT
    for (std::size_t j = 0; j < kBlockSize; ++j) {
      const T from_x[] = {x[all].data[j]...};
      const T from_h[] = {y[all].data[j]...};
      const T before[] = {(all < k ? gates[all].data[j] : T{})...};
      to[j] = Cell::template gate<k>(from_x, from_h, before);
    }
    const Activation<k> activation;
    if constexpr (WorksInBlocks<Activation<k>, T, T>) {
      activation.block(n, to, to);
    } else {
      for (std::size_t j = 0; j < kBlockSize; ++j) to[j] = activation(to[j]);
    }
  }
};

// The same backwards. grad_h and grad_c hold the gradient of the state after the step, to which
// grad_y is added. They become the part of the gradient of the state before that does not come
// through weight_hh.
template <class T, class Cell>
struct RecurrentGradStep {
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

  void operator()() const {
    for_each_block(grad_h.size, width, [this](std::size_t row, std::size_t unit, std::size_t n) {
      block(row, unit, n, std::make_index_sequence<Cell::kGates>(),
            std::make_index_sequence<room_for<Cell::kKept>>());
    });
  }

 private:
  template <std::size_t... k, std::size_t... l>
  void block(std::size_t row, std::size_t unit, std::size_t n, std::index_sequence<k...>,
             std::index_sequence<l...>) const {
    const std::size_t i = row * width + unit;
    const std::size_t next = row + 1;
    (fetch_block<false>(kept, (next * Cell::kKept + l) * width + unit), ...);
    (fetch_block<true>(to_input, (next * Cell::kGates + k) * width + unit), ...);
    (fetch_block<true>(to_hidden, (next * Cell::kGates + k) * width + unit), ...);
    // (A view that is empty stands for zeros.)
    const auto at = [](const auto& view, std::size_t place) {
      return view.size == 0 ? nullptr : view.data + place;
    };
    const BlockIn<T> keep[] = {{at(kept, (row * Cell::kKept + l) * width + unit), n}...};
    const BlockIn<T> h_old(at(h_before, i), n);
    const BlockIn<T> c_old(at(c_before, i), n);
    const BlockIn<T> h_new(at(h, i), n);
    const BlockIn<T> from_above(at(grad_y, i), n);
    const BlockIn<T> from_h(at(grad_h, i), n);
    const BlockIn<T> from_c(at(grad_c, i), n);
    T tanh_c[kBlockSize] = {};
    if constexpr (Cell::kHasC) vectorized::tanh(c.data + i, tanh_c, n);

    const BlockOut<T> x[] = {{at(to_input, (row * Cell::kGates + k) * width + unit), n}...};
    const BlockOut<T> y[] = {{at(to_hidden, (row * Cell::kGates + k) * width + unit), n}...};
    const BlockOut<T> h_out(at(grad_h, i), n);
    const BlockOut<T> c_out(at(grad_c, i), n);
    LOCKSTEP_INDEPENDENT
    for (std::size_t j = 0; j < kBlockSize; ++j) {
      const T kept_here[] = {keep[l].data[j]...};
      UnitState<T> grad{from_h.data[j] + from_above.data[j], from_c.data[j]};
      T to_x[Cell::kGates];
      T to_h[Cell::kGates] = {};
      Cell::gradient(kept_here, {h_old.data[j], c_old.data[j]}, {h_new.data[j], tanh_c[j]}, grad,
                     to_x, to_h);
      ((x[k].data[j] = to_x[k]), ...);
      if constexpr (Cell::kSplits) ((y[k].data[j] = to_h[k]), ...);
      h_out.data[j] = grad.h;
      if constexpr (Cell::kHasC) c_out.data[j] = grad.c;
    }
  }
};

}  // namespace lockstep::detail
