// expect: it looks like a tensor.*specialise lockstep::tensor_traits.*lockstep::shared_by_replicas
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/parallel/data_parallel.hpp>

#include <vector>

class Matrix {
 public:
  double operator()(int row, int column) const { return values_[row * columns_ + column]; }
  int rows() const { return static_cast<int>(values_.size()) / columns_; }
  int cols() const { return columns_; }

 private:
  std::vector<double> values_;
  int columns_ = 1;
};

#ifdef LOCKSTEP_CONTROL
template <>
inline constexpr bool lockstep::shared_by_replicas<Matrix> = true;
#endif

struct Net {
  lockstep::Tensor forward(const lockstep::Tensor& x, const std::vector<Matrix>&) { return x; }
};

int main() {
  lockstep::DataParallel model{Net{}, {"cpu:0", "cpu:1"}};
  (void)model(lockstep::Tensor(), std::vector<Matrix>());
}
