// expect: cannot be divided among devices: it is a container of tensors.*use std::vector
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/parallel/criterion.hpp>

#include <list>
#include <vector>

#ifdef LOCKSTEP_CONTROL
using Targets = std::vector<lockstep::Tensor>;
#else
using Targets = std::list<lockstep::Tensor>;
#endif

struct First {
  lockstep::Tensor forward(const lockstep::Tensor& x, const Targets& targets) {
    return x - targets.front();
  }
};

int main() {
  lockstep::DataParallelCriterion criterion{First{}};
  criterion(lockstep::Scattered<lockstep::Tensor>(), Targets()).backward();
}
