// expect: this module cannot be copied.*in std::shared_ptr instead of std::unique_ptr
// errors: 1
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/module/module.hpp>

#include <memory>

struct Net {
#ifdef LOCKSTEP_CONTROL
  std::shared_ptr<lockstep::Parameter> weight;
#else
  std::unique_ptr<lockstep::Parameter> weight;
#endif
  lockstep::Tensor forward(const lockstep::Tensor& x) { return x; }
};

int main() {
  const Net net;
  (void)lockstep::clone_structure(net);
}
