// expect: cannot be divided among devices: it is a module or functor.*a member of the module
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/parallel/data_parallel.hpp>

struct Scale {
#ifdef LOCKSTEP_CONTROL
  double factor = 2;
#else
  lockstep::Parameter factor;
#endif
  lockstep::Tensor forward(const lockstep::Tensor& x) const { return x * factor; }
};

struct Net {
  lockstep::Tensor forward(const lockstep::Tensor& x, const Scale& scale) {
    return scale.forward(x);
  }
};

int main() {
  lockstep::DataParallel model{Net{}, {"cpu:0", "cpu:1"}};
  (void)model(lockstep::Tensor(), Scale());
}
