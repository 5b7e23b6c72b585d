// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch_in_pieces.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/module/state_reader.hpp>
#include <lockstep/ops/embedding_sparse.hpp>
#include <lockstep/optim/kernels.hpp>
#include <lockstep/optim/optimizer.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <concepts>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

namespace optim {

struct SGDOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
};

// Stochastic gradient descent, with momentum if that is asked for: with g the gradient plus
// weight_decay times the parameter,
//
//   velocity = momentum · velocity + (1 − dampening) · g
//   parameter −= lr · velocity
//
// where a parameter's first velocity is g, and nesterov steps by lr · (g + momentum · velocity);
// and without momentum `parameter −= lr · g`. One kernel a parameter; a parameter without a
// gradient is left as it is. A sparse gradient changes only the rows that it lists, unless there is
// momentum: then all rows go on moving, as they would with the same gradient in a dense tensor.
//
// **Torch counterpart.** torch.optim.SGD, whose documentation is the source of the formulas.
// **Threads and exceptions.** A ValueError for a setting that is negative or not finite, for
// nesterov without momentum or with dampening, and, in a step, for a sparse gradient where there is
// weight_decay; see Optimizer for the parameters.
// **Example.** optim::SGD sgd{model.parameters(), {.lr = 0.1, .momentum = 0.9}};
class SGD : public Optimizer {
 public:
  explicit SGD(const std::vector<Tensor>& parameters, const SGDOptions& options = {})
      : SGD(Checked(), parameters, options) {}
  template <std::derived_from<Tensor> T>
  explicit SGD(const std::vector<T>& parameters, const SGDOptions& options = {})
      : SGD(Checked(), parameters, options) {}

  // Changes every parameter that has a gradient.
  void step() {
    update_each(
        [this](std::size_t i, const Tensor& parameter, const Tensor& gradient,
               const Stream& stream) { change(i, parameter, gradient, stream); },
        weight_decay_ == 0 ? nullptr : "with weight_decay is not compatible with sparse gradients");
  }

  // The settings and the state of each parameter, by name ("state.0.momentum_buffer"), numbers as
  // tensors of one element: what io::save_file can write.
  //
  // Parameters are known by their place in the list, so whoever loads it lists them in the same
  // order. The tensors are the optimiser's own: the next step changes them.
  //
  // **Torch counterpart.** Optimizer.state_dict.
  StateDict state_dict() const {
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

 private:
  struct Checked {};

  static std::string velocity_name(std::size_t i) { return state_name(i, "momentum_buffer"); }

  template <class T>
  SGD(Checked /*tag*/, const std::vector<T>& list, const SGDOptions& options)
      : Optimizer("SGD", list, options.lr), velocities_(parameters().size()) {
    set_options(options);
  }

  void set_options(const SGDOptions& options) {
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

  void change(std::size_t i, const Tensor& parameter, const Tensor& gradient,
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

  void descend(const Tensor& parameter, const Tensor& gradient, const Stream& stream) const {
    dispatch_floating(parameter.dtype(), name(), [&]<class T>(T) {
      launch_between_teams<sizeof(T)>(
          stream, static_cast<std::size_t>(parameter.numel()),
          detail::SgdKernel<T>{detail::output<T>(parameter, stream), detail::input<T>(gradient),
                               static_cast<T>(lr()), static_cast<T>(weight_decay_)});
    });
  }

  void roll(const Tensor& parameter, const Tensor& velocity, const Tensor& gradient, double share,
            const Stream& stream) const {
    dispatch_floating(parameter.dtype(), name(), [&]<class T>(T) {
      launch_between_teams<sizeof(T)>(
          stream, static_cast<std::size_t>(parameter.numel()),
          detail::SgdMomentumKernel<T>{
              detail::output<T>(parameter, stream), detail::output<T>(velocity, stream),
              detail::input<T>(gradient), static_cast<T>(lr()), static_cast<T>(weight_decay_),
              static_cast<T>(momentum_), static_cast<T>(share), nesterov_});
    });
  }

  double momentum_ = 0;
  double dampening_ = 0;
  double weight_decay_ = 0;
  bool nesterov_ = false;
  std::vector<Tensor> velocities_;  // one a parameter, undefined before its first step
};

}  // namespace optim

}  // namespace lockstep
