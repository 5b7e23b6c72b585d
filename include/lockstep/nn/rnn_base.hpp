// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/ops/cat.hpp>
#include <lockstep/ops/dropout.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/ops/rnn.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::nn {

struct RecurrentOptions {
  std::int64_t num_layers = 1;  // each on top of the one before
  bool bias = true;
  bool batch_first = false;    // sequences are [batch, length, …] instead of [length, batch, …]
  double dropout = 0;          // of what a layer gets from the one below, in training
  bool bidirectional = false;  // half of a layer's features are those of the sequence backwards
  std::int64_t proj_size = 0;  // refused: the state is as wide as the layer
  Dtype dtype = Dtype::f32;
  Device device = {};
};

// The parameters of one layer in one direction. Their rows are in blocks of hidden_size, one for
// each gate of the layer's kind.
struct RecurrentWeights {
  Parameter weight_ih;  // [gates · hidden_size, size of the layer's input]
  Parameter weight_hh;  // [gates · hidden_size, hidden_size]
  Parameter bias_ih;    // [gates · hidden_size], or absent
  Parameter bias_hh;
};

}  // namespace lockstep::nn

namespace lockstep::detail {

// What RNN, LSTM and GRU have in common: all but the cell and the form of the state.
struct RecurrentLayers {
  std::vector<nn::RecurrentWeights> weights;  // of layer 0, its backward direction, layer 1, …
  std::int64_t input_size;
  std::int64_t hidden_size;
  std::int64_t num_layers;
  bool batch_first;
  double dropout;
  bool bidirectional;
  bool training = true;

  // weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0, weight_ih_l0_reverse, …, weight_ih_l1, …
  template <class Self, class Visitor>
  static void visit_members(Self& self, Visitor&& visit) {
    for (std::size_t i = 0; i < self.weights.size(); ++i) {
      auto& own = self.weights[i];
      const std::string suffix = self.suffix_of(i);
      visit("weight_ih" + suffix, own.weight_ih);
      visit("weight_hh" + suffix, own.weight_hh);
      visit("bias_ih" + suffix, own.bias_ih);
      visit("bias_hh" + suffix, own.bias_hh);
    }
    visit("training", self.training);
  }

 protected:
  RecurrentLayers(const char* layer, std::int64_t inputs, std::int64_t hidden, std::size_t gates,
                  const nn::RecurrentOptions& options);

  struct Results {
    Tensor y;
    Tensor h;
    Tensor c;  // undefined if the cell has none
  };

  // The first states are as torch takes them, or undefined: then they are zeros.
  template <class Cell>
  Results run(const Tensor& input, const Tensor& h0, const Tensor& c0 = {}) const {
    const bool batched = input.dim() == 3;
    check<ShapeError>((batched || input.dim() == 2) && input.size(-1) == input_size, Cell::name,
                      ": expected an input of shape ",
                      batch_first ? "[batch, length, " : "[length, batch, ", input_size,
                      "] or [length, ", input_size, "], got ", input.sizes());
    check<ValueError>(weights.size() == static_cast<std::size_t>(num_layers * directions()),
                      Cell::name, ": expected the weights of ", num_layers, " layers in ",
                      directions(), " directions, got ", weights.size());
    Tensor x = input;
    if (!batched) {
      x = unsqueeze(input, 1);
    } else if (batch_first) {
      x = transpose(input, 0, 1);
    }
    check<ShapeError>(x.size(0) > 0, Cell::name,
                      ": expected a sequence of at least one time step, got an input of shape ",
                      input.sizes());
    const Tensor h_start = first_states(Cell::name, "h_0", h0, input, batched, x.size(1));
    const Tensor c_start = first_states(Cell::name, "c_0", c0, input, batched, x.size(1));
    Results results = run_layers<Cell>(x, h_start, c_start);
    if (!batched) {
      for (Tensor* tensor : {&results.y, &results.h, &results.c}) {
        if (tensor->defined()) *tensor = squeeze(*tensor, 1);
      }
    } else if (batch_first) {
      results.y = transpose(results.y, 0, 1);
    }
    return results;
  }

 private:
  std::int64_t directions() const { return bidirectional ? 2 : 1; }

  std::string suffix_of(std::size_t i) const;

  // For x [length, batch, input_size] and states [layers · directions, batch, hidden_size].
  template <class Cell>
  Results run_layers(Tensor x, const Tensor& h0, const Tensor& c0) const {
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
        const std::vector<Tensor> results = recurrent<Cell>(
            {{x, part(h0), part(c0), own.weight_ih, own.weight_hh, own.bias_ih, own.bias_hh}},
            direction == 1);
        y.push_back(results[0]);
        h.push_back(results[1]);
        if constexpr (Cell::kHasC) c.push_back(results[2]);
      }
      x = y.size() == 1 ? y[0] : cat(y, 2);
    }
    return {x, stack(h), c.empty() ? Tensor() : stack(c)};
  }

  // As run_layers takes them.
  Tensor first_states(const char* layer, const char* name, const Tensor& states,
                      const Tensor& input, bool batched, std::int64_t batch) const;
};

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/nn/rnn_base.ipp>
#endif
