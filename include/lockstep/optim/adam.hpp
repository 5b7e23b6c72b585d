// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/error.hpp>
#include <lockstep/optim/optimizer.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace lockstep {

namespace detail {

template <class T>
struct AdamKernel {
  View<T> parameter;
  View<T> mean;
  View<T> square;
  View<const T> gradient;
  T weight_decay;
  T beta1;
  T rest1;  // 1 − beta1, rounded after the subtraction
  T beta2;
  T rest2;
  T step_size;   // lr / (1 − beta1^t)
  T root_scale;  // 1 / √(1 − beta2^t)
  T eps;

  LOCKSTEP_HD void operator()(std::size_t i) const {
    const T value = parameter[i];
    const T slope = gradient[i] + weight_decay * value;
    const T first = beta1 * mean[i] + rest1 * slope;
    const T second = beta2 * square[i] + rest2 * slope * slope;
    mean[i] = first;
    square[i] = second;
    parameter[i] = value - step_size * first / (std::sqrt(second) * root_scale + eps);
  }
};

}  // namespace detail

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
      : Adam(Checked(), parameters, options) {}
  template <std::derived_from<Tensor> T>
  explicit Adam(const std::vector<T>& parameters, const AdamOptions& options = {})
      : Adam(Checked(), parameters, options) {}

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

 private:
  struct Checked {};
  struct State {
    Tensor mean;
    Tensor square;
    std::int64_t steps = 0;
  };

  template <class T>
  Adam(Checked /*tag*/, const std::vector<T>& list, const AdamOptions& options)
      : Optimizer("Adam", list, options.lr),
        beta1_(checked("the first beta", options.betas.first)),
        beta2_(checked("the second beta", options.betas.second)),
        eps_(checked("eps", options.eps)),
        weight_decay_(checked("weight_decay", options.weight_decay)),
        states_(parameters().size()) {
    check<ValueError>(beta1_ < 1 && beta2_ < 1, "Adam: expected betas below 1, got ", beta1_,
                      " and ", beta2_);
  }

  void update(const Tensor& parameter, const State& state, const Tensor& gradient,
              const Stream& stream) const {
    const auto steps = static_cast<double>(state.steps);
    const double step_size = lr() / (1 - std::pow(beta1_, steps));
    const double root_scale = 1 / std::sqrt(1 - std::pow(beta2_, steps));
    dispatch_floating(parameter.dtype(), name(), [&]<class T>(T) {
      const auto number = [](double value) { return static_cast<T>(value); };
      launch(stream, static_cast<std::size_t>(parameter.numel()),
             detail::AdamKernel<T>{
                 detail::output<T>(parameter, stream), detail::output<T>(state.mean, stream),
                 detail::output<T>(state.square, stream), detail::input<T>(gradient),
                 number(weight_decay_), number(beta1_), number(1 - beta1_), number(beta2_),
                 number(1 - beta2_), number(step_size), number(root_scale), number(eps_)});
    });
  }

  double beta1_;
  double beta2_;
  double eps_;
  double weight_decay_;
  std::vector<State> states_;  // one a parameter
};

}  // namespace optim

}  // namespace lockstep
