// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/variable.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/module/state_reader.hpp>
#include <lockstep/optim/optimizer.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/fill.hpp>
#include <lockstep/tensor/sparse.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep::optim {

LOCKSTEP_INLINE void Optimizer::zero_grad(bool set_to_none) {
  for (const Tensor& parameter : parameters_) {
    const Tensor grad = set_to_none ? Tensor() : parameter.grad();
    if (!grad.defined()) {
      parameter.set_grad({});
    } else if (grad.is_sparse()) {
      parameter.set_grad(detail::empty_sparse(grad.sizes(), grad.options()));
    } else if (grad.requires_grad() || !grad.is_contiguous()) {
      parameter.set_grad(zeros(grad.sizes(), grad.options()));
    } else {
      detail::fill(grad, 0);
    }
  }
}

LOCKSTEP_INLINE double Optimizer::checked(const char* setting, double value) const {
  check<ValueError>(std::isfinite(value) && value >= 0, name_, ": expected ", setting,
                    " to be a finite number of at least 0, got ", value);
  return value;
}

LOCKSTEP_INLINE void Optimizer::follow(Tensor& state, const Tensor& parameter,
                                       const Stream& stream) const {
  if (!state.defined()) {
    state = zeros_like(parameter);
    return;
  }
  check<ShapeError>(state.sizes() == parameter.sizes(), name_, ": a parameter had shape ",
                    state.sizes(), " when its state was made, and has ", parameter.sizes(), " now");
  if (state.device() != parameter.device() || state.dtype() != parameter.dtype()) {
    const Tensor moved = empty_like(parameter);
    detail::copy_into(moved, state);
    state = moved;
  }
  state.record_stream(stream);  // nobody else can, as nobody else has a handle
}

LOCKSTEP_INLINE std::string Optimizer::group_name(const char* setting) {
  return std::string("param_groups.0.") + setting;
}

LOCKSTEP_INLINE std::string Optimizer::state_name(std::size_t i, const char* what) {
  return "state." + std::to_string(i) + "." + what;
}

LOCKSTEP_INLINE StateDict Optimizer::common_state() const {
  const auto count = static_cast<std::int64_t>(parameters_.size());
  return {{group_name("params"), arange(count)}, detail::named_number(group_name("lr"), lr_)};
}

LOCKSTEP_INLINE double Optimizer::read_common_state(detail::StateReader& reader) const {
  reader.expect_indices(group_name("params"), parameters_.size());
  return reader.number<double>(group_name("lr"));
}

LOCKSTEP_INLINE void Optimizer::check_gradient(std::size_t i, const Tensor& gradient,
                                               const char* against_sparse) const {
  const Tensor& parameter = parameters_[i];
  check<ValueError>(!against_sparse || !gradient.is_sparse(), name_, ' ', against_sparse,
                    ": that of parameter ", i, ", of shape ", parameter.sizes(), ", is sparse");
  check<ShapeError>(gradient.sizes() == parameter.sizes(), name_, ": parameter ", i,
                    " is of shape ", parameter.sizes(), ", but its gradient of shape ",
                    gradient.sizes());
  check<DeviceError>(gradient.device() == parameter.device(), name_, ": parameter ", i, " is on ",
                     parameter.device(), ", but its gradient is on ", gradient.device());
  check<DtypeError>(gradient.dtype() == parameter.dtype(), name_, ": parameter ", i, " is of ",
                    parameter.dtype(), ", but its gradient of ", gradient.dtype());
  check<DtypeError>(parameter.dtype() == Dtype::f32 || parameter.dtype() == Dtype::f64, name_,
                    ": parameter ", i, " is of ", parameter.dtype(), ": expected f32 or f64");
}

}  // namespace lockstep::optim
