// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/autograd/variable.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/module/state_reader.hpp>
#include <lockstep/profile/record_function.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/sparse.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <concepts>
#include <cstddef>
#include <string>
#include <unordered_set>
#include <vector>

namespace lockstep::optim {

// What every optimiser has: the parameters that it changes, and their learning rate.
//
// It keeps handles, so a module that is moved by to(), or that DataParallel takes, stays the one
// that is optimised; the optimiser's own state (such as a momentum) is made by the first step that
// needs it and follows its parameter to another device or dtype. A parameter that is listed twice,
// as tied ones are, is kept once. An optimiser is moved, not copied: two copies would share state.
//
// **Torch counterpart.** torch.optim.Optimizer, with one group of parameters.
// **Devices and streams.** A step is issued to the current stream of each parameter's device, and
// the state belongs to the stream that is current when it is made. Whoever steps on another stream
// later lets that one wait first, as for the parameters themselves.
// **Backward.** Not recorded. A step counts as a change of each parameter that it writes: a graph
// that still needs the values before it fails with a version error.
// **Threads and exceptions.** One thread at a time. If a gradient does not fit its parameter, the
// step throws before anything is changed.
class Optimizer {
 public:
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  const std::vector<Tensor>& parameters() const { return parameters_; }

  double lr() const { return lr_; }
  // The learning rate of the steps from now on; a ValueError unless it is finite and at least 0.
  void set_lr(double lr) { lr_ = checked("lr", lr); }

  // Forgets all gradients, so that the next backward starts anew: grad() is undefined until then,
  // or zeros in place if `set_to_none` is false (no rows, if it is sparse).
  //
  // **Torch counterpart.** Optimizer.zero_grad.
  void zero_grad(bool set_to_none = true);

 protected:
  // `name` is a literal that messages begin with.
  template <std::derived_from<Tensor> T>
  Optimizer(const char* name, const std::vector<T>& parameters, double lr)
      : name_(name), lr_(checked("lr", lr)) {
    check<ValueError>(!parameters.empty(), name_, ": the list of parameters is empty");
    std::unordered_set<const detail::TensorImpl*> seen;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const Tensor& parameter = parameters[i];
      check<ValueError>(parameter.defined(), name_, ": parameter ", i, " is undefined");
      check<AutogradError>(parameter.is_leaf(), name_, ": parameter ", i, " of shape ",
                           parameter.sizes(),
                           " is the result of a recorded operation: only leaves can be optimised");
      check<AutogradError>(parameter.requires_grad(), name_, ": parameter ", i, " of shape ",
                           parameter.sizes(), " does not require gradients: leave it out");
      if (seen.insert(parameter.impl().get()).second) parameters_.push_back(parameter);
    }
  }

  Optimizer(Optimizer&&) = default;
  Optimizer& operator=(Optimizer&&) = default;
  ~Optimizer() = default;

  // A setting that has to be finite and at least 0.
  double checked(const char* setting, double value) const;

  // Calls `update(i, parameter, gradient, stream)` for each parameter that has a gradient. Both
  // tensors are contiguous and of one shape, dtype and device, whose current stream it is. A sparse
  // gradient is coalesced, or refused for the reason that is given.
  template <class Update>
  void update_each(Update&& update, const char* against_sparse = kDenseOnly) const {
    const NoGradGuard guard;
    const profile::RecordFunction range("optimizer", parameters_[0].device());
    std::vector<Tensor> gradients;
    gradients.reserve(parameters_.size());
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      gradients.push_back(parameters_[i].grad());
      if (gradients[i].defined()) check_gradient(i, gradients[i], against_sparse);
    }
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (!gradients[i].defined()) continue;
      const Tensor& parameter = parameters_[i];
      const Stream stream = current_stream(parameter.device());
      const detail::Packed target(parameter);
      if (gradients[i].is_sparse()) {
        update(i, *target, gradients[i].coalesce(), stream);
      } else {
        update(i, *target, *detail::Packed(gradients[i]), stream);
      }
      if (!parameter.is_contiguous()) detail::copy_strided(parameter, *target, stream);
    }
  }

  // Makes `state` fit the parameter: zeros the first time, moved if the parameter was.
  void follow(Tensor& state, const Tensor& parameter, const Stream& stream) const;

  static constexpr const char* kDenseOnly =
      "does not support sparse gradients, please consider SparseAdam instead";

  const char* name() const { return name_; }

  // Names in a state dict, as torch's nested one has them: settings, and the state of parameter i.
  static std::string group_name(const char* setting);
  static std::string state_name(std::size_t i, const char* what);

  // The beginning of a state dict: what every optimiser has.
  StateDict common_state() const;

  // The lr of a state dict, having checked that it is one of as many parameters.
  double read_common_state(detail::StateReader& reader) const;

 private:
  void check_gradient(std::size_t i, const Tensor& gradient, const char* against_sparse) const;

  const char* name_;
  std::vector<Tensor> parameters_;
  double lr_;
};

}  // namespace lockstep::optim

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/optim/optimizer.ipp>
#endif
