// expect: cannot be divided among devices: it has tensors that are const or references
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/parallel/scatter_gather.hpp>

#include <tuple>

int main() {
  lockstep::Tensor x;
  lockstep::Tensor y;
#ifdef LOCKSTEP_CONTROL
  const std::tuple<lockstep::Tensor, lockstep::Tensor> inputs(x, y);
#else
  const std::tuple<lockstep::Tensor&, lockstep::Tensor&> inputs(x, y);
#endif
  (void)lockstep::scatter(inputs, {"cpu:0", "cpu:1"});
}
