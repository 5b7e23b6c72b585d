// expect: it is no plain aggregate .*a lambda with captures.*make it a struct with its layers
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/parallel/data_parallel.hpp>

int main() {
  const lockstep::Parameter weight;
#ifdef LOCKSTEP_CONTROL
  const auto net = [](const lockstep::Tensor& x) { return x; };
#else
  const auto net = [weight](const lockstep::Tensor& x) { return x - weight; };
#endif
  lockstep::DataParallel model{net, {"cpu:0", "cpu:1"}};
  model(lockstep::Tensor()).backward();
}
