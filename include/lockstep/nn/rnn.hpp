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
#include <tuple>
#include <vector>

// Recurrent layers: they turn sequences of inputs into sequences of states.
//
// The input x is a batch of sequences [length, batch, input_size] ([batch, length, input_size] with
// batch_first), or one sequence [length, input_size]. The result is the last layer's state at each
// time step, [length, batch, directions · hidden_size] in the layout of x, and the last state of
// every layer, [layers · directions, batch, hidden_size], also with batch_first. A bidirectional
// layer has two directions.
//
// Without batch_first the batch is dimension 1 of x, states and results: use `dim = 1` of
// DataParallelOptions. With batch_first x and the states disagree on the dimension, so in a
// DataParallel pass no states, and do not use the returned ones.
//
// There are no packed sequences. Pad shorter sequences at the end and mask the padding out of the
// loss: outputs before it do not depend on it, and a sequence's last output is the one at its
// length. The last states include the padding, and so does the backward direction of a
// bidirectional layer, which begins in it.
namespace lockstep::nn {

struct RecurrentOptions {
  std::int64_t num_layers = 1;  // stacked
  bool bias = true;
  bool batch_first = false;    // sequences are [batch, length, …] instead of [length, batch, …]
  double dropout = 0;          // between the layers, in training
  bool bidirectional = false;  // half of a layer's features are of the reversed sequence
  std::int64_t proj_size = 0;  // not supported: a ValueError unless 0
  Dtype dtype = Dtype::f32;
  Device device = {};
};

// The parameters of one layer in one direction. Their rows are in blocks of hidden_size, one for
// each gate of the cell.
struct RecurrentWeights {
  Parameter weight_ih;  // [gates · hidden_size, size of the layer's input]
  Parameter weight_hh;  // [gates · hidden_size, hidden_size]
  Parameter bias_ih;    // [gates · hidden_size], or absent
  Parameter bias_hh;
};

}  // namespace lockstep::nn

namespace lockstep::detail {

struct RecurrentCell;  // ops/rnn.hpp

// The common part of RNN, LSTM and GRU: everything but the cell and the form of the state.
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

  // The initial states are as torch takes them; undefined ones are zeros.
  Results run(const RecurrentCell& cell, const Tensor& input, const Tensor& h0,
              const Tensor& c0 = {}) const;

 private:
  std::int64_t directions() const { return bidirectional ? 2 : 1; }

  std::string suffix_of(std::size_t i) const;

  // Checks the initial states and gives them the shape [layers · directions, batch, hidden_size].
  Tensor first_states(const char* layer, const char* name, const Tensor& states,
                      const Tensor& input, bool batched, std::int64_t batch) const;
};

}  // namespace lockstep::detail

namespace lockstep::nn {

enum class RNNNonlinearity { tanh, relu };

struct RNNOptions {
  std::int64_t num_layers = 1;
  RNNNonlinearity nonlinearity = RNNNonlinearity::tanh;
  bool bias = true;
  bool batch_first = false;
  double dropout = 0;
  bool bidirectional = false;
  Dtype dtype = Dtype::f32;
  Device device = {};
};

// For each time step and layer h' = tanh(weight_ih · x + bias_ih + weight_hh · h + bias_hh), or
// relu instead of tanh.
//
// A copy shares its parameters with the original: they are handles.
//
// **Torch counterpart.** torch.nn.RNN, with its names, shapes and initialisation: all parameters
// uniform in ±1/√hidden_size, drawn from the default generator. All sequences of a batch have the
// same length.
// **Devices and streams.** All tensors are on one device. Half precision is computed in f32, and
// the results rounded. On a GPU cuDNN computes; f32 follows cuda::set_float32_matmul_precision, and
// the same bits every time need CUBLAS_WORKSPACE_CONFIG=:4096:8.
// **Backward.** Gradients of input, initial state and parameters; higher derivatives go through
// elementary operations.
// **Threads and exceptions.** A ValueError for an invalid size or probability, a DtypeError for a
// dtype other than f32 and f64; a warning for dropout with a single layer. forward throws a
// ShapeError, DtypeError or DeviceError that names what does not match.
// **Example.**
//   nn::RNN rnn{28, 64, {.num_layers = 2, .nonlinearity = nn::RNNNonlinearity::relu}};
//   const auto [output, h] = rnn(x);
struct RNN : detail::RecurrentLayers {
  RNNNonlinearity nonlinearity;

  RNN(std::int64_t inputs, std::int64_t hidden, const RNNOptions& options = {});

  // The output and the last h of each layer. An h that is undefined is zeros.
  std::tuple<Tensor, Tensor> forward(const Tensor& x, const Tensor& h = {}) const;
  std::tuple<Tensor, Tensor> operator()(const Tensor& x, const Tensor& h = {}) const {
    return forward(x, h);
  }
};

// For each time step and layer c' = f · c + i · g and h' = o · tanh(c'). The gates i, f and o are a
// sigmoid, and g is tanh, of weight_ih · x + bias_ih + weight_hh · h + bias_hh.
//
// The rows of the parameters are in the order i, f, g, o. Otherwise as nn::RNN.
//
// **Torch counterpart.** torch.nn.LSTM, without proj_size.
// **Example.**
//   nn::LSTM lstm{64, 128, {.num_layers = 2, .dropout = 0.1}};
//   auto [output, state] = lstm(x);
//   auto [next, last] = lstm(y, state);  // continues where x ended
struct LSTM : detail::RecurrentLayers {
  LSTM(std::int64_t inputs, std::int64_t hidden, const RecurrentOptions& options = {});

  // Returns the output and (h, c), the last of each layer. Undefined states are zeros.
  std::tuple<Tensor, std::tuple<Tensor, Tensor>> forward(
      const Tensor& x, const std::tuple<Tensor, Tensor>& state = {}) const;
  auto operator()(const Tensor& x, const std::tuple<Tensor, Tensor>& state = {}) const {
    return forward(x, state);
  }
};

// For each time step and layer h' = (1 − z) · n + z · h. The gates r and z are a sigmoid like
// LSTM's, and n = tanh(weight_in · x + bias_in + r · (weight_hn · h + bias_hn)).
//
// The rows of the parameters are in the order r, z, n. Otherwise as nn::RNN.
//
// **Torch counterpart.** torch.nn.GRU.
// **Example.** nn::GRU gru{64, 128, {.batch_first = true, .bidirectional = true}};
struct GRU : detail::RecurrentLayers {
  GRU(std::int64_t inputs, std::int64_t hidden, const RecurrentOptions& options = {});

  // The output and the last h of each layer. An h that is undefined is zeros.
  std::tuple<Tensor, Tensor> forward(const Tensor& x, const Tensor& h = {}) const;
  std::tuple<Tensor, Tensor> operator()(const Tensor& x, const Tensor& h = {}) const {
    return forward(x, h);
  }
};

}  // namespace lockstep::nn

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/nn/impl/rnn.ipp>
#endif
