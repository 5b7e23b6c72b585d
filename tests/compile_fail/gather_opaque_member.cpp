// expect: gather: results of this type cannot be put together.*shared_by_replicas
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/parallel/data_parallel.hpp>

class Boxes {
 public:
  explicit Boxes(const lockstep::Tensor& corners) : corners_(corners) {}

 private:
  lockstep::Tensor corners_;
};

#ifdef LOCKSTEP_CONTROL
template <>
inline constexpr bool lockstep::shared_by_replicas<Boxes> = true;
#endif

struct Found {
  lockstep::Tensor scores;
  Boxes boxes;
};

struct Detector {
  Found forward(const lockstep::Tensor& x) { return {x, Boxes(x)}; }
};

int main() {
  lockstep::DataParallel model{Detector{}, {"cpu:0", "cpu:1"}};
  (void)model(lockstep::Tensor());
}
