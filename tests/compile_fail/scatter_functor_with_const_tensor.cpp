// expect: cannot be divided among devices: it is a module or functor
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/parallel/scatter_gather.hpp>

struct Shift {
#ifdef LOCKSTEP_CONTROL
  const double offset = 1;
#else
  const lockstep::Tensor offset = {};
#endif
  lockstep::Tensor operator()(const lockstep::Tensor& x) const { return x; }
};

int main() { (void)lockstep::scatter(Shift(), {"cpu:0", "cpu:1"}); }
