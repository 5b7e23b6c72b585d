// expect: this module cannot be copied, as cloning.*in std::shared_ptr instead of std::unique_ptr
// errors: 1
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/module/clone.hpp>
#include <lockstep/module/parameter.hpp>

#include <memory>

struct Net {
#ifdef LOCKSTEP_CONTROL
  std::shared_ptr<lockstep::Parameter> weight;
#else
  std::unique_ptr<lockstep::Parameter> weight;
#endif
};

int main() {
  const Net net;
  const Net copy = lockstep::clone(net);
  return copy.weight ? 1 : 0;
}
