// expect: a list or map of Tensors, such as a state dict, is no module
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/module/module.hpp>

#include <vector>

int main() {
#ifdef LOCKSTEP_CONTROL
  const std::vector<lockstep::Parameter> list;
#else
  const lockstep::StateDict list;
#endif
  return static_cast<int>(lockstep::parameters(list).size());
}
