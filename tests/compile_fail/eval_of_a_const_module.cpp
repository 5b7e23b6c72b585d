// expect: `training` of a module that is const cannot be set
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/module/module.hpp>

struct Net {
  bool training = true;
  lockstep::Tensor forward(const lockstep::Tensor& x) const { return x; }
};

#ifdef LOCKSTEP_CONTROL
void evaluate(Net& net) {
#else
void evaluate(const Net& net) {
#endif
  lockstep::eval(net);
}

int main() {
  Net net;
  evaluate(net);
}
