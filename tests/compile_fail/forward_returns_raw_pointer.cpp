// expect: it points to tensors.*hold them by value
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/parallel/data_parallel.hpp>

struct Net {
  lockstep::Tensor last;
#ifdef LOCKSTEP_CONTROL
  lockstep::Tensor forward(const lockstep::Tensor& x) { return last = x; }
#else
  lockstep::Tensor* forward(const lockstep::Tensor& x) { return &(last = x); }
#endif
};

int main() {
  lockstep::DataParallel model{Net{}, {"cpu:0", "cpu:1"}};
  const auto out = model(lockstep::Tensor());
}
