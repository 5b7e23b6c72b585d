// expect: it has a reference .hold modules and tensors by value
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/parallel/data_parallel.hpp>

struct Scale {
  lockstep::Parameter weight;
  lockstep::Tensor forward(const lockstep::Tensor& x) { return x; }
};

struct Net {
#ifdef LOCKSTEP_CONTROL
  Scale scale;
#else
  Scale& scale;
#endif
  lockstep::Tensor forward(const lockstep::Tensor& x) { return scale.forward(x); }
};

int main() {
  Scale scale;
  lockstep::DataParallel model{Net{scale}, {"cpu:0", "cpu:1"}};
  model(lockstep::Tensor()).backward();
}
