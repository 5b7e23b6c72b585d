// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch_in_pieces.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/module/state_reader.hpp>
#include <lockstep/optim/adam.hpp>
#include <lockstep/optim/kernels.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::optim {

LOCKSTEP_INLINE void Adam::step() {
  update_each(
      [this](std::size_t i, const Tensor& parameter, const Tensor& gradient, const Stream& stream) {
        State& state = states_[i];
        follow(state.mean, parameter, stream);
        follow(state.square, parameter, stream);
        ++state.steps;
        update(parameter, state, gradient, stream);
      });
}

LOCKSTEP_INLINE StateDict Adam::state_dict() const {
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

LOCKSTEP_INLINE void Adam::load_state_dict(const StateDict& dict) {
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

LOCKSTEP_INLINE void Adam::set_options(const AdamOptions& options) {
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

LOCKSTEP_INLINE void Adam::read_state(detail::StateReader& reader, std::size_t i,
                                      State& state) const {
  if (!reader.has_any(state_name(i, ""))) return;
  const std::string step = state_name(i, "step");
  state.steps = reader.number<std::int64_t>(step);
  if (state.steps < 0) reader.misfit(step, "is negative");
  state.mean = reader.copy(state_name(i, "exp_avg"), parameters()[i]);
  state.square = reader.copy(state_name(i, "exp_avg_sq"), parameters()[i]);
}

LOCKSTEP_INLINE void Adam::update(const Tensor& parameter, const State& state,
                                  const Tensor& gradient, const Stream& stream) const {
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

}  // namespace lockstep::optim
