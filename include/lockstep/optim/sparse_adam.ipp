// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch_in_pieces.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/module/state_reader.hpp>
#include <lockstep/ops/embedding_sparse.hpp>
#include <lockstep/optim/kernels.hpp>
#include <lockstep/optim/sparse_adam.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/sparse.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::optim {

LOCKSTEP_INLINE void SparseAdam::step() {
  for (std::size_t i = 0; i < parameters().size(); ++i) {
    const Tensor gradient = parameters()[i].grad();
    check<ValueError>(!gradient.defined() || gradient.is_sparse(), name(),
                      " does not support dense gradients, please consider Adam instead: that of "
                      "parameter ",
                      i, ", of shape ", parameters()[i].sizes(), ", is dense");
  }
  const auto change = [this](std::size_t i, const Tensor& parameter, const Tensor& gradient,
                             const Stream& stream) {
    State& state = states_[i];
    follow(state.mean, parameter, stream);
    follow(state.square, parameter, stream);
    ++state.steps;
    update(parameter, state, gradient, stream);
  };
  update_each(change, nullptr);
}

LOCKSTEP_INLINE StateDict SparseAdam::state_dict() const {
  StateDict dict = common_state();
  dict.push_back(detail::named_number(group_name("betas.0"), beta1_));
  dict.push_back(detail::named_number(group_name("betas.1"), beta2_));
  dict.push_back(detail::named_number(group_name("eps"), eps_));
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const State& state = states_[i];
    if (!state.mean.defined()) continue;
    dict.push_back(detail::named_number(state_name(i, "step"), state.steps));
    dict.push_back({state_name(i, "exp_avg"), state.mean});
    dict.push_back({state_name(i, "exp_avg_sq"), state.square});
  }
  return dict;
}

LOCKSTEP_INLINE void SparseAdam::load_state_dict(const StateDict& dict) {
  detail::StateReader reader(name(), dict);
  const SparseAdamOptions options{.lr = read_common_state(reader),
                                  .betas = {reader.number<double>(group_name("betas.0")),
                                            reader.number<double>(group_name("betas.1"))},
                                  .eps = reader.number<double>(group_name("eps"))};
  std::vector<State> states(parameters().size());
  for (std::size_t i = 0; i < states.size(); ++i) read_state(reader, i, states[i]);
  reader.finish();
  set_options(options);
  states_ = std::move(states);
}

LOCKSTEP_INLINE void SparseAdam::set_options(const SparseAdamOptions& options) {
  const double beta1 = checked("the first beta", options.betas.first);
  const double beta2 = checked("the second beta", options.betas.second);
  const double eps = checked("eps", options.eps);
  check<ValueError>(beta1 < 1 && beta2 < 1, name(), ": expected betas below 1, got ", beta1,
                    " and ", beta2);
  set_lr(options.lr);
  beta1_ = beta1;
  beta2_ = beta2;
  eps_ = eps;
}

LOCKSTEP_INLINE void SparseAdam::read_state(detail::StateReader& reader, std::size_t i,
                                            State& state) const {
  if (!reader.has_any(state_name(i, ""))) return;
  const std::string step = state_name(i, "step");
  state.steps = reader.number<std::int64_t>(step);
  if (state.steps < 0) reader.misfit(step, "is negative");
  state.mean = reader.copy(state_name(i, "exp_avg"), parameters()[i]);
  state.square = reader.copy(state_name(i, "exp_avg_sq"), parameters()[i]);
}

LOCKSTEP_INLINE void SparseAdam::update(const Tensor& parameter, const State& state,
                                        const Tensor& gradient, const Stream& stream) const {
  const auto steps = static_cast<double>(state.steps);
  const double step_size =
      lr() * std::sqrt(1 - std::pow(beta2_, steps)) / (1 - std::pow(beta1_, steps));
  const Tensor indices = gradient.indices();
  const Tensor rows = detail::take_rows(parameter, indices);
  const Tensor means = detail::take_rows(state.mean, indices);
  const Tensor squares = detail::take_rows(state.square, indices);
  dispatch_floating(parameter.dtype(), name(), [&]<class T>(T) {
    const auto number = [](double value) { return static_cast<T>(value); };
    launch_between_teams<sizeof(T)>(
        stream, static_cast<std::size_t>(rows.numel()),
        detail::AdamKernel<T>{detail::output<T>(rows, stream), detail::output<T>(means, stream),
                              detail::output<T>(squares, stream),
                              detail::input<T>(gradient.values()), number(1), number(0),
                              number(beta1_), number(1 - beta1_), number(beta2_),
                              number(1 - beta2_), number(step_size), number(1), number(eps_)});
  });
  detail::put_rows(parameter, indices, rows);
  detail::put_rows(state.mean, indices, means);
  detail::put_rows(state.square, indices, squares);
}

}  // namespace lockstep::optim
