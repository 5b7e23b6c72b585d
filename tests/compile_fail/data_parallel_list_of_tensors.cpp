// expect: cannot be divided among devices: it is a container of tensors.*use std::vector
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/parallel/data_parallel.hpp>

#include <list>
#include <vector>

#ifdef LOCKSTEP_CONTROL
using Inputs = std::vector<lockstep::Tensor>;
#else
using Inputs = std::list<lockstep::Tensor>;
#endif

struct First {
  lockstep::Tensor forward(const Inputs& inputs) { return inputs.front(); }
};

int main() {
  lockstep::DataParallel model{First{}, {"cpu:0", "cpu:1"}};
  (void)model(Inputs());
}
