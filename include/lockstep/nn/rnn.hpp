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

// Recurrent layers: sequences in, sequences of states out.
//
// A batch of sequences is x [length, batch, input_size] ([batch, length, input_size] with
// batch_first), one alone [length, input_size]. The result is the last layer's states at each time
// step, [length, batch, features] like x, and the last states of every layer, [layers · directions,
// batch, hidden_size] also with batch_first. There are two directions where a layer is
// bidirectional, and features are directions · hidden_size.
//
// The batch of x, of states and of results is dimension 1, unless batch_first: DataParallelOptions
// has `dim = 1` for it. With batch_first x and the states disagree on the dimension, so that within
// a DataParallel neither states are taken nor the returned ones of use.
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

// h' = tanh(weight_ih · x + bias_ih + weight_hh · h + bias_hh), or relu of it, for each time step
// and layer.
//
// A copy shares its parameters with the original: they are handles. Dropout is between the layers.
//
// **Torch counterpart.** torch.nn.RNN, with its names, shapes and first values: all uniform in
// ±1/√hidden_size, drawn from the default generator. Sequences of one batch are equally long.
// **Devices and streams.** All on one device: on a host device one product and one kernel a time
// step and layer, on a GPU one call of cuDNN a layer and direction. Half precision is computed in
// f32, and the results rounded; on a GPU f32 follows cuda::set_float32_matmul_precision. cuDNN
// gives the same bits every time where CUBLAS_WORKSPACE_CONFIG is set to :4096:8, as cuBLAS asks
// for.
// **Backward.** Gradients of input, first state and parameters; elementary operations make their
// derivatives.
// **Threads and exceptions.** A ValueError for a size or probability that makes no sense, a
// DtypeError for a dtype other than f32 and f64; a warning for dropout of a single layer. forward
// throws a ShapeError, DtypeError or DeviceError that names what does not fit.
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

// For each time step and layer c' = f · c + i · g and h' = o · tanh(c'), with gates i, f, o through
// a sigmoid and g through tanh, each of weight_ih · x + bias_ih + weight_hh · h + bias_hh.
//
// The rows of the parameters are those for i, f, g and o. Else as nn::RNN.
//
// **Torch counterpart.** torch.nn.LSTM; proj_size is refused.
// **Example.**
//   nn::LSTM lstm{64, 128, {.num_layers = 2, .dropout = 0.1}};
//   auto [output, state] = lstm(x);
//   auto [next, last] = lstm(y, state);  // goes on where x ended
struct LSTM : detail::RecurrentLayers {
  LSTM(std::int64_t inputs, std::int64_t hidden, const RecurrentOptions& options = {});

  // The output and (h, c), the last ones of each layer. Those that are undefined are zeros.
  std::tuple<Tensor, std::tuple<Tensor, Tensor>> forward(
      const Tensor& x, const std::tuple<Tensor, Tensor>& state = {}) const;
  auto operator()(const Tensor& x, const std::tuple<Tensor, Tensor>& state = {}) const {
    return forward(x, state);
  }
};

// For each time step and layer h' = (1 − z) · n + z · h with gates r and z through a sigmoid, and
// n = tanh(weight_in · x + bias_in + r · (weight_hn · h + bias_hn)).
//
// The rows of the parameters are those for r, z and n. Else as nn::RNN.
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
