// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/cuda/libraries/cudnn.hpp>
#include <lockstep/cuda/memory/scratch.hpp>
#include <lockstep/ops/kernels/rnn_kernels.hpp>
#include <lockstep/ops/rnn/rnn_calls.hpp>

#include <array>
#include <compare>
#include <cstddef>
#include <vector>

// What cuDNN is told of a recurrent layer, and where it wants the layer's parameters.
namespace lockstep::cuda {

using RnnDescriptor =
    CudnnDescriptor<cudnnRNNDescriptor_t, cudnnCreateRNNDescriptor, cudnnDestroyRNNDescriptor>;
using RnnDataDescriptor = CudnnDescriptor<cudnnRNNDataDescriptor_t, cudnnCreateRNNDataDescriptor,
                                          cudnnDestroyRNNDataDescriptor>;
using DropoutDescriptor = CudnnDescriptor<cudnnDropoutDescriptor_t, cudnnCreateDropoutDescriptor,
                                          cudnnDestroyDropoutDescriptor>;

// cuDNN's names for the cells. Its order of the gates is torch's, and so is its GRU: the reset gate
// scales the state's part of n, its bias included.
inline cudnnRNNMode_t rnn_mode(detail::TanhCell) { return CUDNN_RNN_TANH; }
inline cudnnRNNMode_t rnn_mode(detail::ReluCell) { return CUDNN_RNN_RELU; }
inline cudnnRNNMode_t rnn_mode(detail::LstmCell) { return CUDNN_LSTM; }
inline cudnnRNNMode_t rnn_mode(detail::GruCell) { return CUDNN_GRU; }

// One layer in one direction, for one geometry.
struct RnnKey {
  cudnnDataType_t type;
  cudnnMathType_t math;
  cudnnRNNMode_t cell;
  cudnnRNNBiasMode_t biases;
  cudnnForwardMode_t mode;  // a backward's is that of its forward: training
  int gates;
  int length, batch, features, width;

  friend auto operator<=>(const RnnKey&, const RnnKey&) = default;
};

template <class T, class Cell>
RnnKey rnn_key(const detail::RecurrentGeometry& g, bool bias_ih, bool bias_hh) {
  const cudnnDataType_t type = cudnn_type<T>;
  return {type,
          static_cast<cudnnMathType_t>(g.math),
          rnn_mode(Cell{}),
          bias_ih ? (bias_hh ? CUDNN_RNN_DOUBLE_BIAS : CUDNN_RNN_SINGLE_INP_BIAS)
                  : (bias_hh ? CUDNN_RNN_SINGLE_REC_BIAS : CUDNN_RNN_NO_BIAS),
          g.training ? CUDNN_FWD_MODE_TRAINING : CUDNN_FWD_MODE_INFERENCE,
          static_cast<int>(Cell::kGates),
          static_cast<int>(g.length),
          static_cast<int>(g.batch),
          static_cast<int>(g.features),
          static_cast<int>(g.width)};
}

// Elements of one parameter that lie side by side in the library's weight space, too.
struct ParameterRun {
  std::size_t from;  // in elements of the parameter
  std::size_t to;    // in bytes of the weight space
  std::size_t size;  // in elements
};

// The descriptors of a layer, and the sizes of what it takes besides its operands, in bytes.
//
// Sequences are described as packed ones, all of one length. Each layer and direction is a network
// of its own to the library, without dropout: lockstep does what lies between layers.
struct RnnPlan {
  DropoutDescriptor no_dropout;
  RnnDescriptor rnn;
  RnnDataDescriptor x, y;
  TensorDescriptor state;
  std::size_t weights = 0;
  std::size_t workspace = 0;
  std::size_t reserve = 0;
  std::array<std::vector<ParameterRun>, 4> runs;  // of weight_ih, weight_hh, bias_ih, bias_hh

  RnnPlan(const CudnnOnStream& cudnn, const RnnKey& key)
      : no_dropout("cudnnCreateDropoutDescriptor", cudnn.device()),
        rnn("cudnnCreateRNNDescriptor", cudnn.device()),
        x("cudnnCreateRNNDataDescriptor", cudnn.device()),
        y("cudnnCreateRNNDataDescriptor", cudnn.device()),
        state("cudnnCreateTensorDescriptor", cudnn.device()) {
    const Device device = cudnn.device();
    check(cudnnSetDropoutDescriptor(no_dropout.get(), cudnn.handle(), 0, nullptr, 0, 0),
          "cudnnSetDropoutDescriptor", device);
    // Small layers go through a whole sequence in one kernel, which keeps the weights; other ones
    // launch several kernels a time step. The limits are those up to which the library has such a
    // kernel for backward, too (as in PyTorch's aten/src/ATen/native/cudnn/RNN.cpp).
    const int most = key.cell == CUDNN_LSTM || key.cell == CUDNN_GRU ? 128 : 256;
    const bool small = key.type == CUDNN_DATA_FLOAT && key.width <= most;
    const cudnnRNNAlgo_t algorithm =
        small ? CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H : CUDNN_RNN_ALGO_STANDARD;
    check(cudnnSetRNNDescriptor_v8(rnn.get(), algorithm, key.cell, key.biases, CUDNN_UNIDIRECTIONAL,
                                   CUDNN_LINEAR_INPUT, key.type, key.type, key.math, key.features,
                                   key.width, key.width, 1, no_dropout.get(),
                                   CUDNN_RNN_PADDED_IO_DISABLED),
          "cudnnSetRNNDescriptor_v8", device);
    const std::vector<int> lengths(static_cast<std::size_t>(key.batch), key.length);
    const auto describe_sequence = [&](const RnnDataDescriptor& sequence, int size) {
      check(cudnnSetRNNDataDescriptor(sequence.get(), key.type,
                                      CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED, key.length, key.batch,
                                      size, lengths.data(), nullptr),
            "cudnnSetRNNDataDescriptor", device);
    };
    describe_sequence(x, key.features);
    describe_sequence(y, key.width);
    const std::array<int, 3> sizes{1, key.batch, key.width};
    const std::array<int, 3> strides{key.batch * key.width, key.width, 1};
    check(cudnnSetTensorNdDescriptor(state.get(), key.type, 3, sizes.data(), strides.data()),
          "cudnnSetTensorNdDescriptor", device);
    check(cudnnGetRNNTempSpaceSizes(cudnn.handle(), rnn.get(), key.mode, x.get(), &workspace,
                                    &reserve),
          "cudnnGetRNNTempSpaceSizes", device);
    check(cudnnGetRNNWeightSpaceSize(cudnn.handle(), rnn.get(), &weights),
          "cudnnGetRNNWeightSpaceSize", device);
    find_parameters(cudnn, key);
  }

 private:
  // The library gives addresses in a weight space, not offsets, so a weight space is lent to it.
  void find_parameters(const CudnnOnStream& cudnn, const RnnKey& key) {
    const Device device = cudnn.device();
    const GpuScratch space(cudnn.stream(), weights);
    const TensorDescriptor matrix("cudnnCreateTensorDescriptor", device);
    const TensorDescriptor bias("cudnnCreateTensorDescriptor", device);
    const auto width = static_cast<std::size_t>(key.width);
    for (int id = 0; id < 2 * key.gates; ++id) {  // those of the input, then those of the state
      void* matrix_at = nullptr;
      void* bias_at = nullptr;
      check(cudnnGetRNNWeightParams(cudnn.handle(), rnn.get(), 0, weights, space.data(), id,
                                    matrix.get(), &matrix_at, bias.get(), &bias_at),
            "cudnnGetRNNWeightParams", device);
      const bool of_state = id >= key.gates;
      const auto gate = static_cast<std::size_t>(id % key.gates);
      const std::size_t size = width * (of_state ? width : static_cast<std::size_t>(key.features));
      add(runs[of_state ? 1 : 0], gate, size, space.data(), matrix_at, key.type);
      if (bias_at != nullptr)
        add(runs[of_state ? 3 : 2], gate, width, space.data(), bias_at, key.type);
    }
  }

  // Adds the part of a parameter that belongs to one gate, to the last run if it follows that.
  static void add(std::vector<ParameterRun>& runs_of, std::size_t gate, std::size_t size,
                  const void* space, const void* place, cudnnDataType_t type) {
    const std::size_t element = type == CUDNN_DATA_DOUBLE ? sizeof(double) : sizeof(float);
    const auto to = static_cast<std::size_t>(static_cast<const std::byte*>(place) -
                                             static_cast<const std::byte*>(space));
    if (!runs_of.empty() && runs_of.back().to + runs_of.back().size * element == to) {
      runs_of.back().size += size;
    } else {
      runs_of.push_back({gate * size, to, size});
    }
  }
};

}  // namespace lockstep::cuda
