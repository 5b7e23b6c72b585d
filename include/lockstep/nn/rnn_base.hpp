// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/module/parameter.hpp>
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

struct RecurrentCell;  // ops/rnn.hpp

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
  Results run(const RecurrentCell& cell, const Tensor& input, const Tensor& h0,
              const Tensor& c0 = {}) const;

 private:
  std::int64_t directions() const { return bidirectional ? 2 : 1; }

  std::string suffix_of(std::size_t i) const;

  // Checks the states and gives them the shape [layers · directions, batch, hidden_size].
  Tensor first_states(const char* layer, const char* name, const Tensor& states,
                      const Tensor& input, bool batched, std::int64_t batch) const;
};

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/nn/impl/rnn_base.ipp>
#endif
