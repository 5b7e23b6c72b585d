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
#include <lockstep/tensor/sparse.hpp>
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

struct SparseAdamOptions {
  double lr = 1e-3;
  std::pair<double, double> betas = {0.9, 0.999};
  double eps = 1e-8;
};

// Adam for sparse gradients, the lazy way: a step changes only the rows that the gradient lists,
// and their running means. With g such a row, in a parameter's step t = 1, 2, …
//
//   m = beta1 · m + (1 − beta1) · g
//   v = beta2 · v + (1 − beta2) · g²
//   row −= lr · √(1 − beta2^t) / (1 − beta1^t) · m / (√v + eps)
//
// t counts the parameter's steps, not the row's, and eps is added to the root of v itself: with
// rows that are all used in each step this is Adam with another eps.
//
// **Torch counterpart.** torch.optim.SparseAdam.
// **Threads and exceptions.** A ValueError for a setting that is negative or not finite, for a beta
// that is not in [0, 1), and, in a step, for a dense gradient; see Optimizer for the parameters.
// **Example.** optim::SparseAdam adam{parameters(words), {.lr = 1e-3}};
class SparseAdam : public Optimizer {
 public:
  explicit SparseAdam(const std::vector<Tensor>& parameters, const SparseAdamOptions& options = {})
      : SparseAdam(Checked(), parameters, options) {}
  template <std::derived_from<Tensor> T>
  explicit SparseAdam(const std::vector<T>& parameters, const SparseAdamOptions& options = {})
      : SparseAdam(Checked(), parameters, options) {}

  // Changes every parameter that has a gradient.
  void step() {
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

  // The settings and the state of each parameter, by name ("state.0.exp_avg"), numbers as
  // tensors of one element: what io::save_file can write.
  //
  // Parameters are known by their place in the list, so whoever loads it lists them in the same
  // order. The tensors are the optimiser's own, and dense; the next step changes them.
  //
  // **Torch counterpart.** Optimizer.state_dict.
  StateDict state_dict() const {
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

 private:
  struct Checked {};
  struct State {
    Tensor mean;
    Tensor square;
    std::int64_t steps = 0;
  };

  template <class T>
  SparseAdam(Checked /*tag*/, const std::vector<T>& list, const SparseAdamOptions& options)
      : Optimizer("SparseAdam", list, options.lr), states_(parameters().size()) {
    set_options(options);
  }

  void set_options(const SparseAdamOptions& options) {
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

  // A parameter has all of its state or, before its first step, none.
  void read_state(detail::StateReader& reader, std::size_t i, State& state) const {
    if (!reader.has_any(state_name(i, ""))) return;
    const std::string step = state_name(i, "step");
    state.steps = reader.number<std::int64_t>(step);
    if (state.steps < 0) reader.misfit(step, "is negative");
    state.mean = reader.copy(state_name(i, "exp_avg"), parameters()[i]);
    state.square = reader.copy(state_name(i, "exp_avg_sq"), parameters()[i]);
  }

  // Adam's kernel on the rows, which are taken out and put back.
  void update(const Tensor& parameter, const State& state, const Tensor& gradient,
              const Stream& stream) const {
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

  double beta1_ = 0;
  double beta2_ = 0;
  double eps_ = 0;
  std::vector<State> states_;  // one a parameter
};

}  // namespace optim

}  // namespace lockstep
