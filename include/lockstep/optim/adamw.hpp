// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/optim/adam.hpp>
#include <lockstep/optim/parameter_list.hpp>

#include <utility>
#include <vector>

namespace lockstep::optim {

struct AdamWOptions {
  double lr = 1e-3;
  std::pair<double, double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 1e-2;
};

// Settings left out are the optimiser's, as in Adam.
using AdamWGroup = AdamGroup;

// Adam with decoupled weight decay: each step first multiplies the parameter by 1 − lr ·
// weight_decay, instead of adding the decay to the gradient.
//
// options() returns AdamOptions, which has the same settings.
//
// **Torch counterpart.** torch.optim.AdamW, without amsgrad (Loshchilov and Hutter, 2019).
// **Threads and exceptions.** As Adam.
// **Example.** optim::AdamW adam{model.parameters(), {.lr = 3e-4, .weight_decay = 0.1}};
class AdamW : public Adam {
 public:
  explicit AdamW(const ParameterList& parameters, const AdamWOptions& options = {})
      : AdamW(std::vector{AdamWGroup{.params = parameters}}, options) {}
  explicit AdamW(const std::vector<AdamWGroup>& groups, const AdamWOptions& defaults = {})
      : Adam("AdamW", groups,
             {.lr = defaults.lr,
              .betas = defaults.betas,
              .eps = defaults.eps,
              .weight_decay = defaults.weight_decay},
             Decay::decoupled) {}
};

}  // namespace lockstep::optim
