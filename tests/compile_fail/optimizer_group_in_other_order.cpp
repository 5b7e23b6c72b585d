// expect: an optimiser's Group has its parameters and then, by the names and in the order
// errors: 1
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/optim/grouped_optimizer.hpp>
#include <lockstep/optim/parameter_list.hpp>

#include <optional>

namespace optim = lockstep::optim;

struct Options {
  double lr = 0.1;
  double momentum = 0.9;
};
struct Group {
  optim::ParameterList params = {};
#ifdef LOCKSTEP_CONTROL
  std::optional<double> lr = {};
  std::optional<double> momentum = {};
#else
  std::optional<double> momentum = {};
  std::optional<double> lr = {};
#endif
};

int main() {
  Group group;
  group.momentum = 0.5;
  return optim::with_defaults(group, Options()).lr == 0.1 ? 0 : 1;
}
