// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/error.hpp>
#include <lockstep/optim/optimizer.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <concepts>
#include <cstddef>
#include <vector>

namespace lockstep {

namespace detail {

template <class T>
struct SgdKernel {
  View<T> parameter;
  View<const T> gradient;
  T lr;
  T weight_decay;

  LOCKSTEP_HD void operator()(std::size_t i) const {
    const T value = parameter[i];
    parameter[i] = value - lr * (gradient[i] + weight_decay * value);
  }
};

template <class T>
struct SgdMomentumKernel {
  View<T> parameter;
  View<T> velocity;
  View<const T> gradient;
  T lr;
  T weight_decay;
  T momentum;
  T share;  // of the gradient in the velocity: 1 − dampening, and 1 in the first step
  bool nesterov;

  LOCKSTEP_HD void operator()(std::size_t i) const {
    const T value = parameter[i];
    const T slope = gradient[i] + weight_decay * value;
    const T speed = momentum * velocity[i] + share * slope;
    velocity[i] = speed;
    parameter[i] = value - lr * (nesterov ? slope + momentum * speed : speed);
  }
};

}  // namespace detail

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
// gradient is left as it is.
//
// **Torch counterpart.** torch.optim.SGD, whose documentation is the source of the formulas.
// **Threads and exceptions.** A ValueError for a setting that is negative or not finite, and for
// nesterov without momentum or with dampening; see Optimizer for the parameters.
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
    update_each([this](std::size_t i, const Tensor& parameter, const Tensor& gradient,
                       const Stream& stream) {
      if (momentum_ == 0) {
        descend(parameter, gradient, stream);
      } else {
        const bool first = !velocities_[i].defined();
        follow(velocities_[i], parameter, stream);
        roll(parameter, velocities_[i], gradient, first ? 1 : 1 - dampening_, stream);
      }
    });
  }

 private:
  struct Checked {};

  template <class T>
  SGD(Checked /*tag*/, const std::vector<T>& list, const SGDOptions& options)
      : Optimizer("SGD", list, options.lr),
        momentum_(checked("momentum", options.momentum)),
        dampening_(checked("dampening", options.dampening)),
        weight_decay_(checked("weight_decay", options.weight_decay)),
        nesterov_(options.nesterov),
        velocities_(parameters().size()) {
    check<ValueError>(!nesterov_ || (momentum_ > 0 && dampening_ == 0),
                      "SGD: nesterov needs a momentum above 0 and no dampening, got momentum ",
                      momentum_, " and dampening ", dampening_);
  }

  void descend(const Tensor& parameter, const Tensor& gradient, const Stream& stream) const {
    dispatch_floating(parameter.dtype(), name(), [&]<class T>(T) {
      launch(stream, static_cast<std::size_t>(parameter.numel()),
             detail::SgdKernel<T>{detail::output<T>(parameter, stream), detail::input<T>(gradient),
                                  static_cast<T>(lr()), static_cast<T>(weight_decay_)});
    });
  }

  void roll(const Tensor& parameter, const Tensor& velocity, const Tensor& gradient, double share,
            const Stream& stream) const {
    dispatch_floating(parameter.dtype(), name(), [&]<class T>(T) {
      launch(stream, static_cast<std::size_t>(parameter.numel()),
             detail::SgdMomentumKernel<T>{
                 detail::output<T>(parameter, stream), detail::output<T>(velocity, stream),
                 detail::input<T>(gradient), static_cast<T>(lr()), static_cast<T>(weight_decay_),
                 static_cast<T>(momentum_), static_cast<T>(share), nesterov_});
    });
  }

  double momentum_;
  double dampening_;
  double weight_decay_;
  bool nesterov_;
  std::vector<Tensor> velocities_;  // one a parameter, undefined before its first step
};

}  // namespace optim

}  // namespace lockstep
