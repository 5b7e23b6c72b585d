// expect: this type is no module: it needs a member function `forward` or an operator\(\)
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/module/module.hpp>

struct Net {
  lockstep::Parameter weight;
#ifdef LOCKSTEP_CONTROL
  lockstep::Tensor forward(const lockstep::Tensor& x) { return x; }
#endif
};

int main() {
  Net net;
  lockstep::detail::forward(net, lockstep::Tensor());
}
