// expect: nn::Sequential takes copyable modules and lambdas: nn::ReLU
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/nn/sequential.hpp>

lockstep::Tensor twice(const lockstep::Tensor& x);

int main() {
#ifdef LOCKSTEP_CONTROL
  lockstep::nn::Sequential net{[](const lockstep::Tensor& x) { return twice(x); }};
#else
  lockstep::nn::Sequential net{twice};
#endif
  return static_cast<int>(net.size());
}
