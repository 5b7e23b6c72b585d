// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch_together.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/module/walk/state_reader.hpp>
#include <lockstep/ops/embedding_sparse.hpp>
#include <lockstep/ops/index.hpp>
#include <lockstep/optim/kernels.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/row_kernels.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::optim {

LOCKSTEP_INLINE void check_options(const char* optimizer, const SGDOptions& options) {
  check_setting(optimizer, "lr", options.lr);
  check_setting(optimizer, "momentum", options.momentum);
  check_setting(optimizer, "dampening", options.dampening);
  check_setting(optimizer, "weight_decay", options.weight_decay);
  check<ValueError>(!options.nesterov || (options.momentum > 0 && options.dampening == 0),
                    optimizer,
                    ": nesterov needs a momentum above 0 and no dampening, got momentum ",
                    options.momentum, " and dampening ", options.dampening);
}

LOCKSTEP_INLINE void list_state(StateDict& dict, const std::string& prefix, const SGDState& state) {
  if (state.velocity.defined()) dict.push_back({prefix + "momentum_buffer", state.velocity});
}

LOCKSTEP_INLINE SGDState read_state(detail::StateReader& reader, const std::string& prefix,
                                    const Tensor& parameter, const SGDState& /*like*/) {
  return {.velocity = reader.copy(prefix + "momentum_buffer", parameter)};
}

LOCKSTEP_INLINE SGD::SGD(const ParameterList& parameters, const SGDOptions& options)
    : GroupedOptimizer("SGD", parameters, options) {}

LOCKSTEP_INLINE SGD::SGD(const std::vector<SGDGroup>& groups, const SGDOptions& defaults)
    : GroupedOptimizer("SGD", groups, defaults) {}

LOCKSTEP_INLINE void SGD::step() {
  check_all_options();
  update_each(
      [this](std::size_t group, std::size_t i, const Tensor& parameter, const Tensor& gradient,
             const Stream& stream, detail::LaunchTogether& together) {
        change(options(group), i, parameter, gradient, stream, together);
      },
      [this](std::size_t group) {
        return options(group).weight_decay == 0
                   ? nullptr
                   : "with weight_decay is not compatible with sparse gradients";
      });
}

LOCKSTEP_INLINE void SGD::change(const SGDOptions& options, std::size_t i, const Tensor& parameter,
                                 const Tensor& gradient, const Stream& stream,
                                 detail::LaunchTogether& together) {
  if (gradient.is_sparse() && options.momentum == 0) {
    const Tensor rows = detail::rows_of(parameter, gradient.indices());
    change(options, i, rows, gradient.values(), stream, together);
    together.launch();
    detail::put_rows(parameter, gradient.indices(), rows);
  } else if (gradient.is_sparse()) {
    const Tensor dense = gradient.to_dense();
    change(options, i, parameter, dense, stream, together);
    together.launch();
  } else if (options.momentum == 0) {
    dispatch_floating(parameter.dtype(), name(), [&]<class T>(T) {
      together.add<sizeof(T)>(
          stream, static_cast<std::size_t>(parameter.numel()),
          detail::SgdKernel<T>{detail::output<T>(parameter, stream), detail::input<T>(gradient),
                               static_cast<T>(options.lr), static_cast<T>(options.weight_decay)});
    });
  } else {
    Tensor& kept = state(i).velocity;
    const bool first = !kept.defined();
    Tensor made;  // stored only at the end: an undefined velocity marks the first step
    Tensor& velocity = first ? made : kept;
    follow(velocity, i, parameter, stream);
    const double share = first ? 1 : 1 - options.dampening;
    dispatch_floating(parameter.dtype(), name(), [&]<class T>(T) {
      together.add<sizeof(T)>(
          stream, static_cast<std::size_t>(parameter.numel()),
          detail::SgdMomentumKernel<T>{
              detail::output<T>(parameter, stream), detail::output<T>(velocity, stream),
              detail::input<T>(gradient), static_cast<T>(options.lr),
              static_cast<T>(options.weight_decay), static_cast<T>(options.momentum),
              static_cast<T>(share), options.nesterov});
    });
    if (first) kept = std::move(made);
  }
}

}  // namespace lockstep::optim
