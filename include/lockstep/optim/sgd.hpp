// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/optim/optimizer.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <concepts>
#include <cstddef>
#include <string>
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
  void step();

  // The settings and the state of each parameter, by name ("state.0.momentum_buffer"), numbers as
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

 private:
  struct Checked {};

  static std::string velocity_name(std::size_t i) { return state_name(i, "momentum_buffer"); }

  template <class T>
  SGD(Checked /*tag*/, const std::vector<T>& list, const SGDOptions& options)
      : Optimizer("SGD", list, options.lr), velocities_(parameters().size()) {
    set_options(options);
  }

  void set_options(const SGDOptions& options);

  void change(std::size_t i, const Tensor& parameter, const Tensor& gradient, const Stream& stream);

  void descend(const Tensor& parameter, const Tensor& gradient, const Stream& stream) const;

  void roll(const Tensor& parameter, const Tensor& velocity, const Tensor& gradient, double share,
            const Stream& stream) const;

  double momentum_ = 0;
  double dampening_ = 0;
  double weight_decay_ = 0;
  bool nesterov_ = false;
  std::vector<Tensor> velocities_;  // one a parameter, undefined before its first step
};

}  // namespace optim

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/optim/sgd.ipp>
#endif
