// expect: the parameters of this module cannot be found: make it a struct with its layers
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/nn/linear.hpp>
#include <lockstep/parallel/data_parallel.hpp>

#include <functional>

#ifdef LOCKSTEP_CONTROL
using Net = lockstep::nn::Linear;
#else
using Net = std::function<lockstep::Tensor(const lockstep::Tensor&)>;
#endif

int main() {
  const Net net = lockstep::nn::Linear{4, 2};
  lockstep::DataParallel model{net, {"cpu:0", "cpu:1"}};
  model(lockstep::Tensor()).backward();
}
