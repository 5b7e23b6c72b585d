// expect: this struct has members in a base class: make the base a member
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/parallel/data_parallel.hpp>

struct Base {
  lockstep::Parameter weight;
};

#ifdef LOCKSTEP_CONTROL
struct Net {
  Base base;
#else
struct Net : Base {
#endif
  lockstep::Parameter bias;
  lockstep::Tensor forward(const lockstep::Tensor& x) { return x; }
};

int main() {
  lockstep::DataParallel model{Net{}, {"cpu:0", "cpu:1"}};
  model(lockstep::Tensor()).backward();
}
