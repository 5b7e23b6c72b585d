// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/variable.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>
#include <lockstep/finite.hpp>
#include <lockstep/optim/optimizer.hpp>
#include <lockstep/optim/parameter_list.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/fill.hpp>
#include <lockstep/tensor/memory_format.hpp>
#include <lockstep/tensor/sparse.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace lockstep::optim {

LOCKSTEP_INLINE void check_setting(const char* optimizer, const char* setting, double value) {
  check<ValueError>(detail::is_finite(value) && value >= 0, optimizer, ": expected ", setting,
                    " to be a finite number of at least 0, got ", value);
}

LOCKSTEP_INLINE void Optimizer::zero_grad(bool set_to_none) {
  check_not_moved();
  for (const Tensor& parameter : parameters_) {
    const Tensor grad = set_to_none ? Tensor() : parameter.grad();
    if (!grad.defined()) {
      parameter.set_grad({});
    } else if (grad.is_sparse()) {
      parameter.set_grad(detail::empty_sparse(grad.sizes(), grad.options()));
    } else if (grad.requires_grad() || detail::repeats_elements(grad)) {
      parameter.set_grad(zeros(grad.sizes(), grad.options()));
    } else if (grad.is_contiguous()) {
      detail::fill(grad, 0);
    } else {
      detail::copy_into(grad, zeros(grad.sizes(), grad.options()));
    }
  }
}

LOCKSTEP_INLINE void Optimizer::check_fits(const Tensor& state, std::size_t i) const {
  if (!state.defined() || state.sizes() == parameters_[i].sizes()) return;
  detail::fail<ShapeError>(name_, ": ", describe(i), " had shape ", state.sizes(),
                           " when its state was made, and has ", parameters_[i].sizes(), " now");
}

LOCKSTEP_INLINE void Optimizer::follow(Tensor& state, std::size_t i, const Tensor& parameter,
                                       const Stream& stream) const {
  if (!state.defined()) {
    state = zeros_like(parameter);
    return;
  }
  check_fits(state, i);
  if (state.device() != parameter.device() || state.dtype() != parameter.dtype() ||
      !state.is_contiguous()) {
    state = detail::copy_as(state, parameter.options());
  }
  state.record_stream(stream);  // the last handle may be state_dict's, whose owner knows no stream
}

LOCKSTEP_INLINE std::span<const Tensor> Optimizer::parameters(std::size_t group) const {
  check_group(group);
  const std::size_t begin = group == 0 ? 0 : ends_[group - 1];
  return std::span(parameters_).subspan(begin, ends_[group] - begin);
}

LOCKSTEP_INLINE double Optimizer::lr(std::size_t group) const {
  check_group(group);
  return lr_of(group);
}

LOCKSTEP_INLINE double Optimizer::initial_lr(std::size_t group) {
  check_group(group);
  while (initial_lrs_.size() <= group) initial_lrs_.push_back(lr_of(initial_lrs_.size()));
  return initial_lrs_[group];
}

LOCKSTEP_INLINE void Optimizer::set_lrs(const std::vector<double>& lrs) {
  check_not_moved();
  check<ValueError>(lrs.size() == group_count(), name_, ": expected a learning rate for each of ",
                    group_count(), " groups, got ", lrs.size());
  for (const double lr : lrs) check_setting(name_, "lr", lr);
  for (std::size_t group = 0; group < lrs.size(); ++group) set_lr_of(group, lrs[group]);
}

LOCKSTEP_INLINE void Optimizer::append(const ParameterList& list, bool one_of_several) {
  const std::size_t group = group_count();
  std::unordered_map<const detail::TensorImpl*, std::size_t> group_of;
  for (std::size_t g = 0; g < group; ++g) {
    for (const Tensor& parameter : parameters(g)) group_of.emplace(parameter.impl().get(), g);
  }
  std::vector<std::size_t> chosen;
  for (std::size_t i = 0; i < list.tensors().size(); ++i) {
    const Tensor& parameter = list.tensors()[i];
    const std::string what = describe(list.names()[i], i, group, one_of_several);
    check<ValueError>(parameter.defined(), name_, ": ", what, " is undefined");
    check<ModuleError>(!parameter.impl()->uninitialized, name_, ": ", what,
                       " is an uninitialized parameter: call forward to initialize the module's "
                       "parameters before it is optimised");
    check<AutogradError>(parameter.is_leaf(), name_, ": ", what, " of shape ", parameter.sizes(),
                         " is the result of a recorded operation: only leaves can be optimised");
    const auto [known, added] = group_of.emplace(parameter.impl().get(), group);
    check<ValueError>(known->second == group, name_, ": ", what, " of shape ", parameter.sizes(),
                      " is in group ", known->second, " already");
    if (added) chosen.push_back(i);
  }
  // From here on only allocations can fail, and only before the first change.
  std::vector<std::string> names = names_;
  for (const std::size_t i : chosen) names.push_back(list.names()[i]);
  ends_.reserve(group + 1);
  parameters_.reserve(names.size());
  for (const std::size_t i : chosen) parameters_.push_back(list.tensors()[i]);
  names_.swap(names);
  ends_.push_back(parameters_.size());
}

LOCKSTEP_INLINE void Optimizer::check_not_moved() const {
  check<ValueError>(!ends_.empty(), name_, ": it has been moved from");
}

LOCKSTEP_INLINE void Optimizer::check_group(std::size_t group) const {
  check_not_moved();
  check<IndexError>(group < group_count(), name_, ": group ", group, " is not there: there are ",
                    group_count());
}

LOCKSTEP_INLINE std::string Optimizer::describe(std::size_t i) const {
  std::size_t group = 0;
  while (i >= ends_[group]) ++group;
  return describe(names_[i], group == 0 ? i : i - ends_[group - 1], group, group_count() > 1);
}

LOCKSTEP_INLINE std::string Optimizer::describe(const std::string& name, std::size_t i,
                                                std::size_t group, bool one_of_several) {
  std::string text =
      name.empty() ? detail::str("parameter ", i) : detail::str("parameter \"", name, '"');
  if (one_of_several) text += detail::str(" of group ", group);
  return text;
}

LOCKSTEP_INLINE void Optimizer::check_gradient(std::size_t i, const Tensor& gradient,
                                               const char* against_sparse) const {
  const Tensor& parameter = parameters_[i];
  if (against_sparse && gradient.is_sparse()) {
    detail::fail<ValueError>(name_, ' ', against_sparse, ": that of ", describe(i), ", of shape ",
                             parameter.sizes(), ", is sparse");
  }
  if (gradient.sizes() != parameter.sizes()) {
    detail::fail<ShapeError>(name_, ": ", describe(i), " is of shape ", parameter.sizes(),
                             ", but its gradient of shape ", gradient.sizes());
  }
  if (gradient.device() != parameter.device()) {
    detail::fail<DeviceError>(name_, ": ", describe(i), " is on ", parameter.device(),
                              ", but its gradient is on ", gradient.device());
  }
  if (gradient.dtype() != parameter.dtype()) {
    detail::fail<DtypeError>(name_, ": ", describe(i), " is of ", parameter.dtype(),
                             ", but its gradient of ", gradient.dtype());
  }
  if (parameter.dtype() != Dtype::f32 && parameter.dtype() != Dtype::f64) {
    detail::fail<DtypeError>(name_, ": ", describe(i), " is of ", parameter.dtype(),
                             ": expected f32 or f64");
  }
  if (detail::repeats_elements(parameter)) {
    detail::fail<ValueError>(name_, ": more than one element of ", describe(i), " of shape ",
                             parameter.sizes(),
                             " is the same element in memory: make it of a contiguous tensor");
  }
}

}  // namespace lockstep::optim
