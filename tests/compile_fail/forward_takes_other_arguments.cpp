// expect: neither forward nor operator\(\) of this module takes these arguments
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/parallel/data_parallel.hpp>

struct Net {
  lockstep::Tensor forward(const lockstep::Tensor& x, double scale) { return x * scale; }
};

int main() {
  lockstep::DataParallel model{Net{}, {"cpu:0", "cpu:1"}};
#ifdef LOCKSTEP_CONTROL
  (void)model(lockstep::Tensor(), 2.0);
#else
  (void)model(lockstep::Tensor());
#endif
}
