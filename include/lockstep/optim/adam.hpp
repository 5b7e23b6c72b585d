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
      : Adam("Adam", parameters, options, Decay::through_gradient) {}
  template <std::derived_from<Tensor> T>
  explicit Adam(const std::vector<T>& parameters, const AdamOptions& options = {})
      : Adam("Adam", parameters, options, Decay::through_gradient) {}

  // Changes every parameter that has a gradient.
  void step();

  // The settings and the state of each parameter, by name ("state.0.exp_avg"), numbers as
  // tensors of one element: what io::save_file can write.
  //
  // Parameters are known by their place in the list, so whoever loads it lists them in the same
  // order. The tensors are the optimiser's own: the next step changes them.
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

 protected:
  enum class Decay { through_gradient, decoupled };

  template <class T>
  Adam(const char* name, const std::vector<T>& list, const AdamOptions& options, Decay decay)
      : Optimizer(name, list, options.lr), decay_(decay), states_(parameters().size()) {
    set_options(options);
  }

 private:
  struct State {
    Tensor mean;
    Tensor square;
    std::int64_t steps = 0;
  };

  void set_options(const AdamOptions& options);

  // A parameter has all of its state or, before its first step, none.
  void read_state(detail::StateReader& reader, std::size_t i, State& state) const;

  void update(const Tensor& parameter, const State& state, const Tensor& gradient,
              const Stream& stream) const;

  Decay decay_;
  double beta1_ = 0;
  double beta2_ = 0;
  double eps_ = 0;
  double weight_decay_ = 0;
  std::vector<State> states_;  // one a parameter
};

}  // namespace optim

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/optim/adam.ipp>
#endif
