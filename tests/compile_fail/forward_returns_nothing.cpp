// expect: the module's forward must return something
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/parallel/data_parallel.hpp>

struct Net {
#ifdef LOCKSTEP_CONTROL
  lockstep::Tensor forward(const lockstep::Tensor& x) { return x; }
#else
  void forward(const lockstep::Tensor& /*x*/) {}
#endif
};

int main() {
  lockstep::DataParallel model{Net{}, {"cpu:0", "cpu:1"}};
  model(lockstep::Tensor());
}
