// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/random.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>

// Initialisation of parameters.
//
// Each function overwrites the tensor in place, whether it requires gradients or not, and returns
// it. This counts as a change and is not recorded. Random numbers are drawn on the host in
// row-major order, so that every device and dtype gets the same ones up to rounding; a uniform one
// that would round up to the upper bound becomes the lower bound.
//
// **Torch counterpart.** torch.nn.init.
// **Threads and exceptions.** A DtypeError for random values in a tensor of integers, and for
// bounds out of the dtype's range; a ValueError for an argument outside its range, and for a tensor
// of which several elements share memory; an AutogradError for an inference tensor outside
// inference mode. After an error the tensor is unchanged.
namespace lockstep::nn::init {

// Which of a weight's connections set its scale: the inputs, which keeps the variance of values in
// forward, or the outputs, which keeps that of gradients in backward.
enum class FanMode { fan_in, fan_out };

// The nonlinearity that follows a layer; the scale of its weights depends on it.
enum class Nonlinearity { linear, sigmoid, tanh, relu, leaky_relu };

struct FanInAndFanOut {
  std::int64_t fan_in;
  std::int64_t fan_out;
};

// The number of inputs of one output of a weight [out, in, …], and of outputs of one input; the
// dimensions after the second, a kernel's, multiply both.
//
// **Torch counterpart.** torch.nn.init._calculate_fan_in_and_fan_out.
FanInAndFanOut calculate_fan_in_and_fan_out(const Tensor& tensor);

// The factor that scales up weights before a nonlinearity; `slope` is leaky_relu's.
//
// **Torch counterpart.** torch.nn.init.calculate_gain.
double calculate_gain(Nonlinearity nonlinearity, double slope = 0.01);

// Uniform between a and b.
const Tensor& uniform_(const Tensor& tensor, double a = 0, double b = 1,
                       Generator& generator = default_generator());

// Normal with the given mean and standard deviation.
const Tensor& normal_(const Tensor& tensor, double mean = 0, double std = 1,
                      Generator& generator = default_generator());

const Tensor& zeros_(const Tensor& tensor);

const Tensor& ones_(const Tensor& tensor);

// Uniform in ±√3 · gain / √fan, where `a` is the negative slope of leaky_relu: keeps the variance
// through layers with rectifiers.
//
// Source: He et al., "Delving deep into rectifiers", 2015. torch's layers use a = √5, which makes
// the bound 1 / √fan_in.
const Tensor& kaiming_uniform_(const Tensor& tensor, double a = 0, FanMode mode = FanMode::fan_in,
                               Nonlinearity nonlinearity = Nonlinearity::leaky_relu,
                               Generator& generator = default_generator());

// Normal with deviation gain / √fan; see kaiming_uniform_.
const Tensor& kaiming_normal_(const Tensor& tensor, double a = 0, FanMode mode = FanMode::fan_in,
                              Nonlinearity nonlinearity = Nonlinearity::leaky_relu,
                              Generator& generator = default_generator());

// Uniform in ±gain · √(6 / (fan_in + fan_out)): a compromise between forward and backward.
//
// Source: Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural
// networks", 2010, equation 16.
const Tensor& xavier_uniform_(const Tensor& tensor, double gain = 1,
                              Generator& generator = default_generator());

// Normal with deviation gain · √(2 / (fan_in + fan_out)); see xavier_uniform_.
const Tensor& xavier_normal_(const Tensor& tensor, double gain = 1,
                             Generator& generator = default_generator());

}  // namespace lockstep::nn::init

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/nn/impl/init.ipp>
#endif
