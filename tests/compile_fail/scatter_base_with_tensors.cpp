// expect: cannot be divided among devices: this struct may have tensors.*no members in a base class
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/parallel/scatter_gather.hpp>

struct Images {
  lockstep::Tensor images;
};

#ifdef LOCKSTEP_CONTROL
struct Batch {
  Images images;
  lockstep::Tensor labels;
};
#else
struct Batch : Images {
  lockstep::Tensor labels;
};
#endif

int main() { (void)lockstep::scatter(Batch(), {"cpu:0", "cpu:1"}); }
