// SPDX-License-Identifier: Apache-2.0
#include <lockstep/lockstep.hpp>

// A matrix product, so that the libraries behind lockstep are linked, too.
int main() {
  lockstep::nn::Linear layer{3, 2};
  const lockstep::Tensor y = layer(lockstep::ones({4, 3}));
  return y.size(0) == 4 && y.size(1) == 2 ? 0 : 1;
}
