// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch_together.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/module/walk/state_reader.hpp>
#include <lockstep/optim/adam.hpp>
#include <lockstep/optim/kernels.hpp>
#include <lockstep/optim/optimizer.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::optim {

LOCKSTEP_INLINE void check_betas(const char* optimizer, const std::pair<double, double>& betas) {
  check_setting(optimizer, "the first beta", betas.first);
  check_setting(optimizer, "the second beta", betas.second);
  check<ValueError>(betas.first < 1 && betas.second < 1, optimizer,
                    ": expected betas below 1, got ", betas.first, " and ", betas.second);
}

LOCKSTEP_INLINE void check_options(const char* optimizer, const AdamOptions& options) {
  check_setting(optimizer, "lr", options.lr);
  check_betas(optimizer, options.betas);
  check_setting(optimizer, "eps", options.eps);
  check_setting(optimizer, "weight_decay", options.weight_decay);
}

LOCKSTEP_INLINE void list_state(StateDict& dict, const std::string& prefix,
                                const AdamState& state) {
  if (!state.square.defined()) return;
  dict.push_back(detail::named_number(prefix + "step", state.steps));
  dict.push_back({prefix + "exp_avg", state.mean});
  dict.push_back({prefix + "exp_avg_sq", state.square});
}

LOCKSTEP_INLINE AdamState read_state(detail::StateReader& reader, const std::string& prefix,
                                     const Tensor& parameter, const AdamState& /*like*/) {
  AdamState state;
  state.steps = reader.count(prefix + "step");
  state.mean = reader.copy(prefix + "exp_avg", parameter);
  state.square = reader.copy(prefix + "exp_avg_sq", parameter);
  return state;
}

LOCKSTEP_INLINE Adam::Adam(const char* name, const std::vector<AdamGroup>& groups,
                           const AdamOptions& defaults, Decay decay)
    : GroupedOptimizer(name, groups, defaults), decay_(decay) {}

LOCKSTEP_INLINE void Adam::step() {
  check_all_options();
  const bool decoupled = decay_ == Decay::decoupled;
  update_each(
      [&](std::size_t group, std::size_t i, const Tensor& parameter, const Tensor& gradient,
          const Stream& stream, detail::LaunchTogether& together) {
        AdamState& own = state(i);
        follow(own.mean, i, parameter, stream);
        follow(own.square, i, parameter, stream);
        const auto steps = static_cast<double>(own.steps + 1);
        const AdamOptions& of = options(group);
        const double beta1 = of.betas.first;
        const double beta2 = of.betas.second;
        const double kept = decoupled ? 1 - of.lr * of.weight_decay : 1;
        const double step_size = of.lr / (1 - std::pow(beta1, steps));
        const double root_scale = 1 / std::sqrt(1 - std::pow(beta2, steps));
        dispatch_floating(parameter.dtype(), name(), [&]<class T>(T) {
          const auto number = [](double value) { return static_cast<T>(value); };
          together.add<sizeof(T)>(
              stream, static_cast<std::size_t>(parameter.numel()),
              detail::AdamKernel<T>{
                  detail::output<T>(parameter, stream), detail::output<T>(own.mean, stream),
                  detail::output<T>(own.square, stream), detail::input<T>(gradient), number(kept),
                  number(decoupled ? 0 : of.weight_decay), number(beta1), number(1 - beta1),
                  number(beta2), number(1 - beta2), number(step_size), number(root_scale),
                  number(of.eps)});
        });
        ++own.steps;
      },
      [](std::size_t /*group*/) { return kDenseOnly; });
}

}  // namespace lockstep::optim
