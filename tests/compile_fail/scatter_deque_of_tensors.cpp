// expect: cannot be divided among devices: it is a container of tensors.*use std::vector
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/parallel/scatter_gather.hpp>

#include <deque>
#include <vector>

struct Batch {
  std::deque<int> lengths;
#ifdef LOCKSTEP_CONTROL
  std::vector<lockstep::Tensor> images;
#else
  std::deque<lockstep::Tensor> images;
#endif
};

int main() { (void)lockstep::scatter(Batch(), {"cpu:0", "cpu:1"}); }
