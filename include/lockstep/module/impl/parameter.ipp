// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/variable.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

namespace lockstep::detail {

LOCKSTEP_INLINE Tensor uninitialized_tensor(const TensorOptions& options) {
  const Tensor tensor = empty({0}, options);
  tensor.impl()->uninitialized = true;
  return tensor;
}

LOCKSTEP_INLINE void materialize(const Tensor& tensor, const Shape& shape) {
  tensor.set_data(empty(shape, tensor.options()));
}

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE Parameter Parameter::uninitialized(const TensorOptions& options,
                                                   bool requires_grad) {
  Parameter parameter;
  static_cast<Tensor&>(parameter) = detail::uninitialized_tensor(
      {.dtype = options.dtype, .device = options.device, .requires_grad = requires_grad});
  return parameter;
}

LOCKSTEP_INLINE void Parameter::materialize(const Shape& shape) const {
  check<ModuleError>(defined(), "materialize: the parameter is absent");
  check<ModuleError>(is_uninitialized(), "materialize: the parameter is initialized already");
  detail::materialize(*this, shape);
}

}  // namespace lockstep
