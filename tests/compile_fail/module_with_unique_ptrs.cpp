// expect: this module cannot be copied.*in std::shared_ptr instead of std::unique_ptr
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/parallel/data_parallel.hpp>

#include <memory>
#include <vector>

struct Scale {
  lockstep::Parameter weight;
  lockstep::Tensor forward(const lockstep::Tensor& x) { return x; }
};

struct Net {
#ifdef LOCKSTEP_CONTROL
  std::vector<std::shared_ptr<Scale>> layers;
#else
  std::vector<std::unique_ptr<Scale>> layers;
#endif
  lockstep::Tensor forward(const lockstep::Tensor& x) { return x; }
};

int main() {
  lockstep::DataParallel model{Net{}, {"cpu:0", "cpu:1"}};
  model(lockstep::Tensor()).backward();
}
