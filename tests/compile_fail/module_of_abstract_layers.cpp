// expect: parameters behind a pointer to an abstract class.*hold a std::variant of those classes
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/parallel/data_parallel.hpp>

#include <memory>
#include <variant>
#include <vector>

struct Scale {
  lockstep::Parameter weight;
  lockstep::Tensor forward(const lockstep::Tensor& x) { return x; }
};

struct Layer {
  virtual ~Layer() = default;
  virtual lockstep::Tensor forward(const lockstep::Tensor& x) = 0;
};

struct Net {
#ifdef LOCKSTEP_CONTROL
  std::vector<std::variant<Scale>> layers;
#else
  std::vector<std::shared_ptr<Layer>> layers;
#endif
  lockstep::Tensor forward(const lockstep::Tensor& x) { return x; }
};

int main() {
  lockstep::DataParallel model{Net{}, {"cpu:0", "cpu:1"}};
  model(lockstep::Tensor()).backward();
}
