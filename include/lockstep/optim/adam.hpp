// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch_in_pieces.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/module/state_reader.hpp>
#include <lockstep/optim/kernels.hpp>
#include <lockstep/optim/optimizer.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

namespace optim {

struct AdamOptions {
  double lr = 1e-3;
  std::pair<double, double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
};

// Adam: steps along a running mean of the gradient, scaled by a running mean of its square, both
// corrected for having started at zero. With g the gradient plus weight_decay times the parameter,
// in a parameter's step t = 1, 2, …
//
//   m = beta1 · m + (1 − beta1) · g
//   v = beta2 · v + (1 − beta2) · g²
//   parameter −= lr · (m / (1 − beta1^t)) / (√(v / (1 − beta2^t)) + eps)
//
// One kernel a parameter; a parameter without a gradient is left as it is, and its t with it.
//
// **Torch counterpart.** torch.optim.Adam, without amsgrad. The formulas are those of its
// documentation (Kingma and Ba, 2015, algorithm 1, with the decay added to the gradient).
// **Threads and exceptions.** A ValueError for a setting that is negative or not finite, and for a
// beta that is not in [0, 1); see Optimizer for the parameters.
// **Example.** optim::Adam adam{model.parameters(), {.lr = 1e-3}};
class Adam : public Optimizer {
 public:
  explicit Adam(const std::vector<Tensor>& parameters, const AdamOptions& options = {})
      : Adam("Adam", parameters, options, Decay::through_gradient) {}
  template <std::derived_from<Tensor> T>
  explicit Adam(const std::vector<T>& parameters, const AdamOptions& options = {})
      : Adam("Adam", parameters, options, Decay::through_gradient) {}

  // Changes every parameter that has a gradient.
  void step() {
    update_each([this](std::size_t i, const Tensor& parameter, const Tensor& gradient,
                       const Stream& stream) {
      State& state = states_[i];
      follow(state.mean, parameter, stream);
      follow(state.square, parameter, stream);
      ++state.steps;
      update(parameter, state, gradient, stream);
    });
  }

  // The settings and the state of each parameter, by name ("state.0.exp_avg"), numbers as
  // tensors of one element: what io::save_file can write.
  //
  // Parameters are known by their place in the list, so whoever loads it lists them in the same
  // order. The tensors are the optimiser's own: the next step changes them.
  //
  // **Torch counterpart.** Optimizer.state_dict.
  StateDict state_dict() const {
    StateDict dict = common_state();
    dict.push_back(detail::named_number(group_name("betas.0"), beta1_));
    dict.push_back(detail::named_number(group_name("betas.1"), beta2_));
    dict.push_back(detail::named_number(group_name("eps"), eps_));
    dict.push_back(detail::named_number(group_name("weight_decay"), weight_decay_));
    for (std::size_t i = 0; i < states_.size(); ++i) {
      const State& state = states_[i];
      if (!state.mean.defined()) continue;
      dict.push_back(detail::named_number(state_name(i, "step"), state.steps));
      dict.push_back({state_name(i, "exp_avg"), state.mean});
      dict.push_back({state_name(i, "exp_avg_sq"), state.square});
    }
    return dict;
  }

  // Takes over the settings and copies of the state that `state_dict` gave, in the dtype and on the
  // device of each parameter: training goes on with the same bits.
  //
  // **Torch counterpart.** Optimizer.load_state_dict.
  // **Devices and streams.** The copies are issued to the current streams.
  // **Threads and exceptions.** A ModuleError that lists all that is missing, unexpected or of
  // another shape, or a ValueError for a setting that the constructor would not take; nothing has
  // been changed then.
  void load_state_dict(const StateDict& dict) {
    detail::StateReader reader(name(), dict);
    const AdamOptions options{.lr = read_common_state(reader),
                              .betas = {reader.number<double>(group_name("betas.0")),
                                        reader.number<double>(group_name("betas.1"))},
                              .eps = reader.number<double>(group_name("eps")),
                              .weight_decay = reader.number<double>(group_name("weight_decay"))};
    std::vector<State> states(parameters().size());
    for (std::size_t i = 0; i < states.size(); ++i) read_state(reader, i, states[i]);
    reader.finish();
    set_options(options);
    states_ = std::move(states);
  }

 protected:
  enum class Decay { through_gradient, decoupled };

  template <class T>
  Adam(const char* name, const std::vector<T>& list, const AdamOptions& options, Decay decay)
      : Optimizer(name, list, options.lr), decay_(decay), states_(parameters().size()) {
    set_options(options);
  }

 private:
  struct State {
    Tensor mean;
    Tensor square;
    std::int64_t steps = 0;
  };

  void set_options(const AdamOptions& options) {
    const double beta1 = checked("the first beta", options.betas.first);
    const double beta2 = checked("the second beta", options.betas.second);
    const double eps = checked("eps", options.eps);
    const double weight_decay = checked("weight_decay", options.weight_decay);
    check<ValueError>(beta1 < 1 && beta2 < 1, name(), ": expected betas below 1, got ", beta1,
                      " and ", beta2);
    set_lr(options.lr);
    beta1_ = beta1;
    beta2_ = beta2;
    eps_ = eps;
    weight_decay_ = weight_decay;
  }

  // A parameter has all of its state or, before its first step, none.
  void read_state(detail::StateReader& reader, std::size_t i, State& state) const {
    if (!reader.has_any(state_name(i, ""))) return;
    const std::string step = state_name(i, "step");
    state.steps = reader.number<std::int64_t>(step);
    if (state.steps < 0) reader.misfit(step, "is negative");
    state.mean = reader.copy(state_name(i, "exp_avg"), parameters()[i]);
    state.square = reader.copy(state_name(i, "exp_avg_sq"), parameters()[i]);
  }

  void update(const Tensor& parameter, const State& state, const Tensor& gradient,
              const Stream& stream) const {
    const auto steps = static_cast<double>(state.steps);
    const bool decoupled = decay_ == Decay::decoupled;
    const double kept = decoupled ? 1 - lr() * weight_decay_ : 1;
    const double step_size = lr() / (1 - std::pow(beta1_, steps));
    const double root_scale = 1 / std::sqrt(1 - std::pow(beta2_, steps));
    dispatch_floating(parameter.dtype(), name(), [&]<class T>(T) {
      const auto number = [](double value) { return static_cast<T>(value); };
      launch_between_teams<sizeof(T)>(
          stream, static_cast<std::size_t>(parameter.numel()),
          detail::AdamKernel<T>{detail::output<T>(parameter, stream),
                                detail::output<T>(state.mean, stream),
                                detail::output<T>(state.square, stream), detail::input<T>(gradient),
                                number(kept), number(decoupled ? 0 : weight_decay_), number(beta1_),
                                number(1 - beta1_), number(beta2_), number(1 - beta2_),
                                number(step_size), number(root_scale), number(eps_)});
    });
  }

  Decay decay_;
  double beta1_ = 0;
  double beta2_ = 0;
  double eps_ = 0;
  double weight_decay_ = 0;
  std::vector<State> states_;  // one a parameter
};

}  // namespace optim

}  // namespace lockstep
