// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/module/state_reader.hpp>
#include <lockstep/optim/optimizer.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
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
  void step();

  // The settings and the state of each parameter, by name ("state.0.exp_avg"), numbers as
  // tensors of one element: what io::save_file can write.
  //
  // Parameters are known by their place in the list, so whoever loads it lists them in the same
  // order. The tensors are the optimiser's own, and dense; the next step changes them.
  //
  // **Torch counterpart.** Optimizer.state_dict.
  StateDict state_dict() const;

  // Takes over the settings and copies of the state that `state_dict` gave, in the dtype and on the
  // device of each parameter: training goes on with the same bits.
  //
  // **Torch counterpart.** Optimizer.load_state_dict.
  // **Devices and streams.** The copies are issued to the current streams.
  // **Threads and exceptions.** A ModuleError that lists all that is missing, unexpected or of
  // another shape, or a ValueError for a setting that the constructor would not take; nothing has
  // been changed then.
  void load_state_dict(const StateDict& dict);

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

  void set_options(const SparseAdamOptions& options);

  // A parameter has all of its state or, before its first step, none.
  void read_state(detail::StateReader& reader, std::size_t i, State& state) const;

  // Adam's kernel on the rows, which are taken out and put back.
  void update(const Tensor& parameter, const State& state, const Tensor& gradient,
              const Stream& stream) const;

  double beta1_ = 0;
  double beta2_ = 0;
  double eps_ = 0;
  std::vector<State> states_;  // one a parameter
};

}  // namespace optim

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/optim/sparse_adam.ipp>
#endif
