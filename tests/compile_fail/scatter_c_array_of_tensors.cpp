// expect: cannot be divided among devices: it is a container of tensors.*std::array
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/parallel/scatter_gather.hpp>

#include <array>

struct Batch {
#ifdef LOCKSTEP_CONTROL
  std::array<lockstep::Tensor, 2> images;
#else
  lockstep::Tensor images[2];
#endif
};

int main() { (void)lockstep::scatter(Batch(), {"cpu:0", "cpu:1"}); }
