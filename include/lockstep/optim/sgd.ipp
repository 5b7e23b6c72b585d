// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch_in_pieces.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/module/state_reader.hpp>
#include <lockstep/ops/embedding_sparse.hpp>
#include <lockstep/optim/kernels.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::optim {

LOCKSTEP_INLINE void SGD::step() {
  update_each(
      [this](std::size_t i, const Tensor& parameter, const Tensor& gradient, const Stream& stream) {
        change(i, parameter, gradient, stream);
      },
      weight_decay_ == 0 ? nullptr : "with weight_decay is not compatible with sparse gradients");
}

LOCKSTEP_INLINE StateDict SGD::state_dict() const {
  StateDict dict = common_state();
  dict.push_back(detail::named_number(group_name("momentum"), momentum_));
  dict.push_back(detail::named_number(group_name("dampening"), dampening_));
  dict.push_back(detail::named_number(group_name("weight_decay"), weight_decay_));
  dict.push_back(detail::named_number(group_name("nesterov"), nesterov_));
  for (std::size_t i = 0; i < velocities_.size(); ++i) {
    if (velocities_[i].defined()) dict.push_back({velocity_name(i), velocities_[i]});
  }
  return dict;
}

LOCKSTEP_INLINE void SGD::load_state_dict(const StateDict& dict) {
  detail::StateReader reader(name(), dict);
  const SGDOptions options{.lr = read_common_state(reader),
                           .momentum = reader.number<double>(group_name("momentum")),
                           .dampening = reader.number<double>(group_name("dampening")),
                           .weight_decay = reader.number<double>(group_name("weight_decay")),
                           .nesterov = reader.number<bool>(group_name("nesterov"))};
  std::vector<Tensor> velocities(parameters().size());
  for (std::size_t i = 0; i < velocities.size(); ++i) {
    const std::string velocity = velocity_name(i);
    if (reader.has_any(velocity)) velocities[i] = reader.copy(velocity, parameters()[i]);
  }
  reader.finish();
  set_options(options);
  velocities_ = std::move(velocities);
}

LOCKSTEP_INLINE void SGD::set_options(const SGDOptions& options) {
  const double momentum = checked("momentum", options.momentum);
  const double dampening = checked("dampening", options.dampening);
  const double weight_decay = checked("weight_decay", options.weight_decay);
  check<ValueError>(!options.nesterov || (momentum > 0 && dampening == 0),
                    "SGD: nesterov needs a momentum above 0 and no dampening, got momentum ",
                    momentum, " and dampening ", dampening);
  set_lr(options.lr);
  momentum_ = momentum;
  dampening_ = dampening;
  weight_decay_ = weight_decay;
  nesterov_ = options.nesterov;
}

LOCKSTEP_INLINE void SGD::change(std::size_t i, const Tensor& parameter, const Tensor& gradient,
                                 const Stream& stream) {
  if (gradient.is_sparse() && momentum_ == 0) {
    const Tensor rows = detail::take_rows(parameter, gradient.indices());
    descend(rows, gradient.values(), stream);
    detail::put_rows(parameter, gradient.indices(), rows);
  } else if (gradient.is_sparse()) {
    change(i, parameter, gradient.to_dense(), stream);
  } else if (momentum_ == 0) {
    descend(parameter, gradient, stream);
  } else {
    const bool first = !velocities_[i].defined();
    follow(velocities_[i], parameter, stream);
    roll(parameter, velocities_[i], gradient, first ? 1 : 1 - dampening_, stream);
  }
}

LOCKSTEP_INLINE void SGD::descend(const Tensor& parameter, const Tensor& gradient,
                                  const Stream& stream) const {
  dispatch_floating(parameter.dtype(), name(), [&]<class T>(T) {
    launch_between_teams<sizeof(T)>(
        stream, static_cast<std::size_t>(parameter.numel()),
        detail::SgdKernel<T>{detail::output<T>(parameter, stream), detail::input<T>(gradient),
                             static_cast<T>(lr()), static_cast<T>(weight_decay_)});
  });
}

LOCKSTEP_INLINE void SGD::roll(const Tensor& parameter, const Tensor& velocity,
                               const Tensor& gradient, double share, const Stream& stream) const {
  dispatch_floating(parameter.dtype(), name(), [&]<class T>(T) {
    launch_between_teams<sizeof(T)>(
        stream, static_cast<std::size_t>(parameter.numel()),
        detail::SgdMomentumKernel<T>{
            detail::output<T>(parameter, stream), detail::output<T>(velocity, stream),
            detail::input<T>(gradient), static_cast<T>(lr()), static_cast<T>(weight_decay_),
            static_cast<T>(momentum_), static_cast<T>(share), nesterov_});
  });
}

}  // namespace lockstep::optim
