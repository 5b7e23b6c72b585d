// expect: a pointer to a module is no module: give the module itself, \*pointer
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/parallel/data_parallel.hpp>

#include <memory>

struct Net {
  lockstep::Parameter weight;
  lockstep::Tensor forward(const lockstep::Tensor& x) { return x; }
};

int main() {
  const auto net = std::make_shared<Net>();
#ifdef LOCKSTEP_CONTROL
  lockstep::DataParallel model{*net, {"cpu:0", "cpu:1"}};
#else
  lockstep::DataParallel model{net, {"cpu:0", "cpu:1"}};
#endif
  const lockstep::Tensor out = model(lockstep::Tensor());
}
