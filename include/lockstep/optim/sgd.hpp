// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch_together.hpp>
#include <lockstep/config.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/module/walk/state_reader.hpp>
#include <lockstep/optim/grouped_optimizer.hpp>
#include <lockstep/optim/parameter_list.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <optional>
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

// A group of parameters with settings of its own; settings left out are the optimiser's.
struct SGDGroup {
  ParameterList params = {};
  std::optional<double> lr = {};
  std::optional<double> momentum = {};
  std::optional<double> dampening = {};
  std::optional<double> weight_decay = {};
  std::optional<bool> nesterov = {};
};

struct SGDState {
  Tensor velocity = {};  // undefined before the parameter's first step
};

// The functions that GroupedOptimizer requires.
void check_options(const char* optimizer, const SGDOptions& options);
void list_state(StateDict& dict, const std::string& prefix, const SGDState& state);
SGDState read_state(detail::StateReader& reader, const std::string& prefix, const Tensor& parameter,
                    const SGDState& like);

// Stochastic gradient descent, with optional momentum. With g the gradient plus weight_decay times
// the parameter, it is `parameter −= lr · g`, or with momentum
//
//   velocity = momentum · velocity + (1 − dampening) · g
//   parameter −= lr · velocity
//
// where a parameter's first velocity is g, and nesterov steps by lr · (g + momentum · velocity). A
// parameter without a gradient stays as it is. A sparse gradient changes only the rows that it
// lists, unless there is momentum: then all rows move, as with the same gradient in a dense tensor.
//
// **Torch counterpart.** torch.optim.SGD. The formulas are from its documentation.
// **Threads and exceptions.** A ValueError for a setting that is negative or not finite, for
// nesterov without momentum or with dampening, and, in a step, for a sparse gradient with
// weight_decay. See Optimizer for the parameters.
// **Example.**
//   optim::SGD sgd{model.parameters(), {.lr = 0.1, .momentum = 0.9}};
//   optim::SGD groups{{{.params = parameters(net.body), .lr = 0.01},
//                      {.params = parameters(net.head)}},
//                     {.lr = 0.1, .momentum = 0.9}};
class SGD : public GroupedOptimizer<SGDOptions, SGDGroup, SGDState> {
 public:
  explicit SGD(const ParameterList& parameters, const SGDOptions& options = {});
  explicit SGD(const std::vector<SGDGroup>& groups, const SGDOptions& defaults = {});

  // Changes every parameter that has a gradient.
  void step();

 private:
  void check_state(std::size_t group, std::size_t i) const override {
    if (options(group).momentum != 0) check_fits(state(i).velocity, i);
  }
  void change(const SGDOptions& options, std::size_t i, const Tensor& parameter,
              const Tensor& gradient, const Stream& stream, detail::LaunchTogether& together);
};

}  // namespace optim

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/optim/impl/sgd.ipp>
#endif
