// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>

namespace lockstep::nn {

// The parameters of a layer that has no others. The layer says what shapes they have, and whether
// they may be absent. Copies share them with the original: they are handles.
struct WeightAndBias {
  Parameter weight;
  Parameter bias;

  template <class Self, class Visitor>
  static void visit_members(Self& self, Visitor&& visit) {
    visit("weight", self.weight);
    visit("bias", self.bias);
  }
};

}  // namespace lockstep::nn

namespace lockstep::detail {

// The base of layers that have neither tensors nor layers.
struct NoMembers {
  template <class Self, class Visitor>
  static void visit_members(Self& /*self*/, Visitor&& /*visit*/) {}
};

// Throws a ValueError for a size below 1.
void check_layer_size(const char* layer, const char* what, std::int64_t size);

// The options of a layer's parameters; a DtypeError for a dtype other than f32 and f64.
TensorOptions parameter_options(const char* layer, Dtype dtype, Device device);

// A weight [out, in, …] initialised as in torch, by kaiming_uniform_ with a = √5.
Parameter first_weight(const Shape& shape, const TensorOptions& options);

// The bias [out] of such a weight, uniform in ±1/√fan_in.
Parameter first_bias(const Tensor& weight);

}  // namespace lockstep::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/nn/impl/layer.ipp>
#endif
