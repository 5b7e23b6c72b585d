// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/module/state_dict.hpp>
#include <lockstep/optim/adam.hpp>
#include <lockstep/optim/grouped_optimizer.hpp>
#include <lockstep/optim/parameter_list.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep {

namespace optim {

struct SparseAdamOptions {
  double lr = 1e-3;
  std::pair<double, double> betas = {0.9, 0.999};
  double eps = 1e-8;
};

// A group of parameters with settings of its own; settings left out are the optimiser's.
struct SparseAdamGroup {
  ParameterList params = {};
  std::optional<double> lr = {};
  std::optional<std::pair<double, double>> betas = {};  // .betas = {{0.9, 0.95}}
  std::optional<double> eps = {};
};

// The function that GroupedOptimizer requires.
void check_options(const char* optimizer, const SparseAdamOptions& options);

// Lazy Adam for sparse gradients: a step changes only the rows that the gradient lists, and their
// running means. With g such a row, in a parameter's step t = 1, 2, …
//
//   m = beta1 · m + (1 − beta1) · g
//   v = beta2 · v + (1 − beta2) · g²
//   row −= lr · √(1 − beta2^t) / (1 − beta1^t) · m / (√v + eps)
//
// t counts the parameter's steps, not the row's, and eps is added to the root of v itself: if every
// step uses all rows, this is Adam with another eps.
//
// **Torch counterpart.** torch.optim.SparseAdam.
// **Threads and exceptions.** A ValueError for a setting that is negative or not finite, for a beta
// outside [0, 1), and, in a step, for a dense gradient. See Optimizer for the parameters.
// **Example.** optim::SparseAdam adam{parameters(words), {.lr = 1e-3}};
class SparseAdam : public GroupedOptimizer<SparseAdamOptions, SparseAdamGroup, AdamState> {
 public:
  explicit SparseAdam(const ParameterList& parameters, const SparseAdamOptions& options = {});
  explicit SparseAdam(const std::vector<SparseAdamGroup>& groups,
                      const SparseAdamOptions& defaults = {});

  // Changes every parameter that has a gradient.
  void step();

 private:
  void check_state(std::size_t, std::size_t i) const override { check_fits(state(i).mean, i); }
};

}  // namespace optim

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/optim/impl/sparse_adam.ipp>
#endif
