// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/device/device.hpp>
#include <lockstep/module/module.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/parallel/data_parallel.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/sparse.hpp>

#include "parallel/programs/program.hpp"
#include "parallel/programs/program_module.hpp"
#include "support/devices.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

// A program's modules as layers of the library.
namespace lockstep::testing::programs {

inline Dtype dtype_of_program(const Program& program) { return dtype_of(program.type); }

inline const std::vector<Device>& program_devices() {
  static const std::vector<Device> devices = first_devices(6);
  return devices;
}

// A tensor of the program's dtype in host memory, whose element i is `value(i)`.
template <class F>
Tensor make_tensor(const Program& program, const Sizes& sizes, F value) {
  std::vector<double> values(static_cast<std::size_t>(count(sizes)));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = value(i);
  return from_values(values, shape(sizes)).to(dtype_of_program(program));
}

class LayerMaker {
 public:
  // For a program that runs on `device` first.
  LayerMaker(const Program& program, const Module& module,
             const std::vector<lockstep::Parameter>& parameters, Device device)
      : program_(program), module_(module), parameters_(parameters), device_(device) {}

  Layer make() const {
    const auto& n = module_.numbers;
    switch (module_.op) {
      case Op::linear:
      case Op::inner: {
        nn::Linear linear{n[0], n[1], {.bias = n[2] != 0, .dtype = dtype()}};
        place({&linear.weight, &linear.bias});
        if (module_.op == Op::linear) return linear;
        to(linear, device_);  // a parameter that it shares may be there already
        const Device second = program_devices()[static_cast<std::size_t>(n[3])];
        return DataParallel{linear, {device_, second}};
      }
      case Op::sequence: {
        nn::Linear linear{n[0], n[1], {.bias = n[2] != 0, .dtype = dtype()}};
        place({&linear.weight, &linear.bias});
        return nn::Sequential{linear, nn::ReLU{}};
      }
      case Op::conv2d: {
        nn::Conv2d conv{n[0],
                        n[1],
                        n[2],
                        {.stride = n[3],
                         .padding = n[4],
                         .dilation = n[5],
                         .groups = n[6],
                         .bias = n[7] != 0,
                         .dtype = dtype()}};
        place({&conv.weight, &conv.bias});
        return conv;
      }
      case Op::batch_norm:
        if (n[1] < 4) return batch_norm<nn::BatchNorm1d>();
        return batch_norm<nn::BatchNorm2d>();
      case Op::layer_norm: {
        nn::LayerNorm norm{shape({n.begin() + 3, n.end()}),
                           {.elementwise_affine = n[1] != 0, .bias = n[2] != 0, .dtype = dtype()}};
        place({&norm.weight, &norm.bias});
        return norm;
      }
      case Op::group_norm: {
        nn::GroupNorm norm{n[1], n[0], {.affine = n[2] != 0, .dtype = dtype()}};
        place({&norm.weight, &norm.bias});
        return norm;
      }
      case Op::embedding: {
        nn::EmbeddingOptions options{.sparse = n[3] != 0, .dtype = dtype()};
        if (n[2] >= 0) options.padding_idx = n[2];
        nn::Embedding embedding{n[0], n[1], options};
        place({&embedding.weight});
        if (options.sparse) expect_sparse_gradient(embedding.weight);
        return embedding;
      }
      case Op::multihead: {
        nn::MultiheadAttention attention{
            n[0], n[1], {.bias = n[2] != 0, .batch_first = true, .dtype = dtype()}};
        place({&attention.in_proj_weight, &attention.in_proj_bias, &attention.out_proj.weight,
               &attention.out_proj.bias});
        return attention;
      }
      case Op::rnn:
      case Op::relu_rnn: {
        const bool relu = module_.op == Op::relu_rnn;
        return recurrent(
            nn::RNN{n[0],
                    n[1],
                    {.num_layers = n[2],
                     .nonlinearity = relu ? nn::RNNNonlinearity::relu : nn::RNNNonlinearity::tanh,
                     .bias = n[4] != 0,
                     .batch_first = true,
                     .bidirectional = n[3] != 0,
                     .dtype = dtype()}});
      }
      case Op::lstm:
        return recurrent(nn::LSTM{n[0], n[1], recurrent_options()});
      case Op::gru:
        return recurrent(nn::GRU{n[0], n[1], recurrent_options()});
      case Op::dropout:
        return nn::Dropout{static_cast<double>(n[0]) / 100};
      case Op::affine:
        return Affine{parameters_[module_.parameters[0]], buffer()};
      default:
        return Average{buffer()};
    }
  }

 private:
  // A layer is not made of half precision; its parameters may become it.
  Dtype dtype() const { return program_.type == Type::f64 ? Dtype::f64 : Dtype::f32; }

  // Puts the program's parameters in place of those that are there.
  void place(const std::vector<lockstep::Parameter*>& places) const {
    std::size_t next = 0;
    for (lockstep::Parameter* place : places) {
      if (place->defined()) *place = parameters_[module_.parameters[next++]];
    }
  }
  template <class Norm>
  Layer batch_norm() const {
    const auto& n = module_.numbers;
    Norm norm{n[0], {.affine = n[2] != 0, .track_running_stats = n[3] != 0, .dtype = dtype()}};
    place({&norm.weight, &norm.bias});
    return norm;
  }
  template <class Layers>
  Layer recurrent(Layers layers) const {
    std::vector<lockstep::Parameter*> places;
    for (nn::RecurrentWeights& own : layers.weights) {
      places.insert(places.end(), {&own.weight_ih, &own.weight_hh, &own.bias_ih, &own.bias_hh});
    }
    place(places);
    return layers;
  }
  nn::RecurrentOptions recurrent_options() const {
    const auto& n = module_.numbers;
    return {.num_layers = n[2],
            .bias = n[4] != 0,
            .batch_first = true,
            .bidirectional = n[3] != 0,
            .dtype = dtype()};
  }
  Buffer buffer() const {
    return Buffer(make_tensor(program_, {module_.numbers[0]}, [](std::size_t) { return 0.25; }));
  }

  const Program& program_;
  const Module& module_;
  const std::vector<lockstep::Parameter>& parameters_;
  const Device device_;
};

}  // namespace lockstep::testing::programs
