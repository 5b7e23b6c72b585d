// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/backend/launch_together.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>
#include <lockstep/optim/parameter_list.hpp>
#include <lockstep/profile/record_function.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/sparse.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <concepts>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace lockstep::optim {

// Throws a ValueError unless the setting is finite and at least 0.
void check_setting(const char* optimizer, const char* setting, double value);

// The base of every optimiser: the parameters that it changes, in groups with settings of their
// own.
//
// It keeps handles on the parameters, so it goes on optimising a module that to() moves or
// DataParallel takes. Its own state, such as a momentum, is made by the first step that needs it,
// and follows its parameter to another device or dtype. A parameter that is listed twice, as tied
// ones are, is kept once. An optimiser can be moved but not copied: two copies would share state.
//
// A step changes the parameters that have a gradient. A frozen parameter, which does not require
// grad, may be listed: it gets no gradient and stays as it is, once zero_grad has dropped any
// gradient from before.
//
// **Torch counterpart.** torch.optim.Optimizer.
// **Devices and streams.** A step is issued to the current stream of each parameter's device, and
// the state belongs to the stream that is current when it is made. To step on another stream later,
// make that stream wait first, as for the parameters themselves.
// **Backward.** Not recorded. A step counts as a change of each parameter that it writes: a graph
// that still needs the old values fails with a version error.
// **Threads and exceptions.** One thread at a time. If a gradient does not match its parameter, or
// a setting is invalid, the step throws before it changes anything. Messages name a parameter by
// its name, or, if it came without one, by its place in its group. An IndexError for a group that
// does not exist, and a ValueError for an optimiser that has been moved from.
class Optimizer {
 public:
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // The parameters of all groups, one group after another.
  const std::vector<Tensor>& parameters() const { return parameters_; }

  std::size_t group_count() const { return ends_.size(); }
  std::span<const Tensor> parameters(std::size_t group) const;

  double lr(std::size_t group = 0) const;
  // Sets the learning rate of all groups from the next step on; a ValueError unless it is finite
  // and at least 0.
  void set_lr(double lr) { set_lrs(std::vector<double>(group_count(), lr)); }
  // The same with one rate for each group.
  void set_lrs(const std::vector<double>& lrs);

  // The group's learning rate when this was first called for it or a later group. All schedules of
  // an optimiser are based on it (optim/lr_scheduler.hpp).
  //
  // **Torch counterpart.** param_groups[group]["initial_lr"].
  double initial_lr(std::size_t group);

  // Drops all gradients, so that the next backward starts anew: grad() is undefined until then. If
  // `set_to_none` is false it is zeros, in place (no rows if sparse; new zeros if it is recorded or
  // several of its elements share memory).
  //
  // **Torch counterpart.** Optimizer.zero_grad.
  void zero_grad(bool set_to_none = true);

 protected:
  // Messages begin with `name`, a literal. There is no group yet.
  explicit Optimizer(const char* name) : name_(name) {}

  Optimizer(Optimizer&&) = default;
  Optimizer& operator=(Optimizer&&) = default;
  virtual ~Optimizer() = default;

  // Adds a group of these parameters, or nothing if one of them cannot be optimised. If
  // `one_of_several`, messages name the group.
  void append(const ParameterList& list, bool one_of_several);

  virtual double lr_of(std::size_t group) const = 0;
  virtual void set_lr_of(std::size_t group, double lr) = 0;

  // The initial rates of the first groups, as far as schedules have asked for them.
  const std::vector<double>& initial_lrs() const { return initial_lrs_; }
  void set_initial_lrs(std::vector<double> lrs) { initial_lrs_ = std::move(lrs); }

  void check_not_moved() const;
  void check_group(std::size_t group) const;

  // Calls `update(group, i, parameter, gradient, stream)` for each parameter that has a gradient.
  // Both tensors are contiguous, of one shape, dtype and device; the stream is that device's
  // current one. A sparse gradient is coalesced, or refused with the reason that
  // `against_sparse(group)` returns, if any. An update that takes a detail::LaunchTogether& as its
  // last argument may leave kernels there; they are launched before this returns or throws, while
  // both tensors exist.
  template <class Update, class Reason>
  void update_each(Update&& update, Reason&& against_sparse) const {
    check_not_moved();
    const NoGradGuard guard;
    const profile::RecordFunction range("optimizer", parameters_[0].device());
    std::vector<Tensor> gradients;
    gradients.reserve(parameters_.size());
    std::size_t group = 0;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      while (i == ends_[group]) ++group;
      gradients.push_back(parameters_[i].grad());
      if (!gradients[i].defined()) continue;
      check_gradient(i, gradients[i], against_sparse(group));
      check_state(group, i);
    }
    detail::LaunchTogether together;
    try {
      group = 0;
      for (std::size_t i = 0; i < parameters_.size(); ++i) {
        while (i == ends_[group]) ++group;
        if (gradients[i].defined()) update_one(update, group, i, gradients[i], together);
      }
    } catch (...) {
      together.launch();  // the state of these parameters has changed already
      throw;
    }
    together.launch();
  }

  // Throws, by `check_fits`, if a step needs the state of parameter i and its shape is not the
  // parameter's. Called before a step changes anything.
  virtual void check_state(std::size_t /*group*/, std::size_t /*i*/) const {}
  void check_fits(const Tensor& state, std::size_t i) const;

  // Makes the `state` of parameter i match `parameter`, the tensor that update_each passes for it:
  // zeros at first, moved if the parameter was, and copied if its layout was changed through a
  // handle from state_dict.
  void follow(Tensor& state, std::size_t i, const Tensor& parameter, const Stream& stream) const;

  static constexpr const char* kDenseOnly =
      "does not support sparse gradients, please consider SparseAdam instead";

  const char* name() const { return name_; }

  // The name of parameter i in messages.
  std::string describe(std::size_t i) const;

 private:
  template <class Update>
  void update_one(Update& update, std::size_t group, std::size_t i, const Tensor& gradient,
                  detail::LaunchTogether& together) const {
    const Tensor& parameter = parameters_[i];
    const Stream stream = current_stream(parameter.device());
    const auto change = [&](const Tensor& target, const Tensor& slope) {
      if constexpr (std::invocable<Update&, std::size_t, std::size_t, const Tensor&, const Tensor&,
                                   const Stream&, detail::LaunchTogether&>) {
        update(group, i, target, slope, stream, together);
      } else {
        update(group, i, target, slope, stream);
      }
    };
    if (parameter.is_contiguous() && !gradient.is_sparse() && gradient.is_contiguous()) [[likely]] {
      return change(parameter, gradient);
    }
    // The copies, and so the kernels that use them, end with this call.
    together.launch();
    const detail::Packed target(parameter);
    const Tensor slope = gradient.is_sparse() ? gradient.coalesce() : detail::packed(gradient);
    change(*target, slope);
    together.launch();
    if (!parameter.is_contiguous()) detail::copy_strided(parameter, *target, stream);
  }

  static std::string describe(const std::string& name, std::size_t i, std::size_t group,
                              bool one_of_several);

  void check_gradient(std::size_t i, const Tensor& gradient, const char* against_sparse) const;

  const char* name_;
  std::vector<Tensor> parameters_;
  std::vector<std::string> names_;   // one for each parameter, perhaps empty
  std::vector<std::size_t> ends_;    // of each group, in the list of parameters
  std::vector<double> initial_lrs_;  // of the groups that schedules have asked for
};

}  // namespace lockstep::optim

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/optim/impl/optimizer.ipp>
#endif
