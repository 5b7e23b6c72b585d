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
#include <cstdint>
#include <optional>
#include <string>
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

// A group of parameters with settings of its own; settings left out are the optimiser's.
struct AdamGroup {
  ParameterList params = {};
  std::optional<double> lr = {};
  std::optional<std::pair<double, double>> betas = {};  // .betas = {{0.9, 0.95}}
  std::optional<double> eps = {};
  std::optional<double> weight_decay = {};
};

// What the Adam optimisers keep for each parameter, from its first step on.
struct AdamState {
  Tensor mean = {};
  Tensor square = {};      // created after `mean`
  std::int64_t steps = 0;  // steps made so far
};

void check_betas(const char* optimizer, const std::pair<double, double>& betas);

// The functions that GroupedOptimizer requires.
void check_options(const char* optimizer, const AdamOptions& options);
void list_state(StateDict& dict, const std::string& prefix, const AdamState& state);
AdamState read_state(detail::StateReader& reader, const std::string& prefix,
                     const Tensor& parameter, const AdamState& like);

// Adam: steps along a running mean of the gradient, scaled by a running mean of its square, both
// corrected for having started at zero. With g the gradient plus weight_decay times the parameter,
// in a parameter's step t = 1, 2, …
//
//   m = beta1 · m + (1 − beta1) · g
//   v = beta2 · v + (1 − beta2) · g²
//   parameter −= lr · (m / (1 − beta1^t)) / (√(v / (1 − beta2^t)) + eps)
//
// A parameter without a gradient stays as it is, and so does its t.
//
// **Torch counterpart.** torch.optim.Adam, without amsgrad. The formulas are from its documentation
// (Kingma and Ba, 2015, algorithm 1, with the decay added to the gradient).
// **Threads and exceptions.** A ValueError for a setting that is negative or not finite, and for a
// beta outside [0, 1). See Optimizer for the parameters.
// **Example.** optim::Adam adam{model.parameters(), {.lr = 1e-3}};
class Adam : public GroupedOptimizer<AdamOptions, AdamGroup, AdamState> {
 public:
  explicit Adam(const ParameterList& parameters, const AdamOptions& options = {})
      : Adam(std::vector{AdamGroup{.params = parameters}}, options) {}
  explicit Adam(const std::vector<AdamGroup>& groups, const AdamOptions& defaults = {})
      : Adam("Adam", groups, defaults, Decay::through_gradient) {}

  // Changes every parameter that has a gradient.
  void step();

 protected:
  enum class Decay { through_gradient, decoupled };

  Adam(const char* name, const std::vector<AdamGroup>& groups, const AdamOptions& defaults,
       Decay decay);

 private:
  void check_state(std::size_t, std::size_t i) const override { check_fits(state(i).mean, i); }
  Decay decay_;
};

}  // namespace optim

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/optim/impl/adam.ipp>
#endif
