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

// What every optimiser has: the parameters that it changes, in groups with settings of their own.
//
// It keeps handles, so a module that is moved by to(), or that DataParallel takes, stays the one
// that is optimised; the optimiser's own state (such as a momentum) is made by the first step that
// needs it and follows its parameter to another device or dtype. A parameter that is listed twice,
// as tied ones are, is kept once. An optimiser is moved, not copied: two copies would share state.
//
// A step changes the parameters that have a gradient. A frozen one, which does not require grad,
// may be listed: it gets no gradient, and so it stays as it is until it is thawed, once zero_grad
// has taken the gradient that it may have from before.
//
// **Torch counterpart.** torch.optim.Optimizer.
// **Devices and streams.** A step is issued to the current stream of each parameter's device, and
// the state belongs to the stream that is current when it is made. Whoever steps on another stream
// later lets that one wait first, as for the parameters themselves.
// **Backward.** Not recorded. A step counts as a change of each parameter that it writes: a graph
// that still needs the values before it fails with a version error.
// **Threads and exceptions.** One thread at a time. If a gradient does not fit its parameter, or a
// setting is not valid, the step throws before anything is changed. Messages call a parameter by
// its name if it came with one, else by its place in its group. An IndexError for a group that is
// not there, and a ValueError for an optimiser that has been moved from.
class Optimizer {
 public:
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // The parameters of all groups, one group after another.
  const std::vector<Tensor>& parameters() const { return parameters_; }

  std::size_t group_count() const { return ends_.size(); }
  std::span<const Tensor> parameters(std::size_t group) const;

  double lr(std::size_t group = 0) const;
  // The learning rate of all groups in the steps from now on; a ValueError unless it is finite and
  // at least 0.
  void set_lr(double lr) { set_lrs(std::vector<double>(group_count(), lr)); }
  // The same with one rate for each group.
  void set_lrs(const std::vector<double>& lrs);

  // The learning rate that the group had when this was first asked for it or a later group: what
  // all schedules of one optimiser go by (optim/lr_scheduler.hpp).
  //
  // **Torch counterpart.** param_groups[group]["initial_lr"].
  double initial_lr(std::size_t group);

  // Forgets all gradients, so that the next backward starts anew: grad() is undefined until then,
  // or zeros in place if `set_to_none` is false (no rows, if it is sparse; other zeros, if it is
  // recorded or several of its elements are one in memory).
  //
  // **Torch counterpart.** Optimizer.zero_grad.
  void zero_grad(bool set_to_none = true);

 protected:
  // `name` is a literal that messages begin with. There is no group yet.
  explicit Optimizer(const char* name) : name_(name) {}

  Optimizer(Optimizer&&) = default;
  Optimizer& operator=(Optimizer&&) = default;
  virtual ~Optimizer() = default;

  // Adds a group of these parameters, or nothing at all if one of them cannot be optimised. If it
  // is `one_of_several` messages name the group.
  void append(const ParameterList& list, bool one_of_several);

  virtual double lr_of(std::size_t group) const = 0;
  virtual void set_lr_of(std::size_t group, double lr) = 0;

  // The initial rates of the first groups, as many as schedules have asked for.
  const std::vector<double>& initial_lrs() const { return initial_lrs_; }
  void set_initial_lrs(std::vector<double> lrs) { initial_lrs_ = std::move(lrs); }

  void check_not_moved() const;
  void check_group(std::size_t group) const;

  // Calls `update(group, i, parameter, gradient, stream)` for each parameter that has a gradient.
  // Both tensors are contiguous and of one shape, dtype and device, whose current stream it is. A
  // sparse gradient is coalesced, or refused for the reason that `against_sparse(group)` gives, if
  // any. An update that takes a detail::LaunchTogether& as its last argument may leave kernels
  // there: they are launched before this returns or throws, while the two tensors are there.
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

  // Throws, by `check_fits`, if a step would need the state of parameter i and that has another
  // shape than the parameter. Called before a step changes anything.
  virtual void check_state(std::size_t /*group*/, std::size_t /*i*/) const {}
  void check_fits(const Tensor& state, std::size_t i) const;

  // Has the `state` of parameter i follow `parameter`, which is that one as update_each gives it:
  // zeros the first time, moved if the parameter was, and copied if somebody who has it from
  // state_dict has given it another layout.
  void follow(Tensor& state, std::size_t i, const Tensor& parameter, const Stream& stream) const;

  static constexpr const char* kDenseOnly =
      "does not support sparse gradients, please consider SparseAdam instead";

  const char* name() const { return name_; }

  // What messages call parameter i.
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
    // Copies go with this call, and so do the kernels that need them.
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
  std::vector<std::string> names_;   // one a parameter, empty for none
  std::vector<std::size_t> ends_;    // of each group, in the list of parameters
  std::vector<double> initial_lrs_;  // of the groups that schedules have asked for
};

}  // namespace lockstep::optim

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/optim/impl/optimizer.ipp>
#endif
