// expect: this type is no module: it needs a member function `forward` or an operator\(\)
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/parallel/data_parallel.hpp>

struct Net {
  lockstep::Parameter weight;
#ifdef LOCKSTEP_CONTROL
  lockstep::Tensor forward(const lockstep::Tensor& x) { return x; }
#endif
};

int main() { const lockstep::DataParallel model{Net{}, {"cpu:0", "cpu:1"}}; }
