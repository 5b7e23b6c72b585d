// expect: specialisation of tensor_traits has an is_on, but not `static bool is_on
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/parallel/parallel_apply.hpp>

#include <cstdint>
#include <vector>

class Matrix {};

template <>
struct lockstep::tensor_traits<Matrix> {
  static bool defined(const Matrix&) { return true; }
  static Device device(const Matrix&) { return {}; }
  static std::int64_t dim(const Matrix&) { return 0; }
  static std::int64_t size(const Matrix&, std::int64_t /*dim*/) { return 0; }
  static std::vector<Matrix> scatter(const Matrix&, const std::vector<Device>&,
                                     const std::vector<std::int64_t>&, std::int64_t) {
    return {};
  }
  static std::vector<Matrix> broadcast(const Matrix&, const std::vector<Device>&) { return {}; }
  static Matrix gather(const std::vector<Matrix>& parts, Device, std::int64_t) { return parts[0]; }
#ifdef LOCKSTEP_CONTROL
  static bool is_on(const Matrix&, Device) { return true; }
#else
  static bool is_on(Matrix&, Device) { return true; }
#endif
};

struct Same {
  Matrix forward(const Matrix& x) { return x; }
};

int main() {
  std::vector<Same> modules(2);
  (void)lockstep::parallel_apply(modules, std::vector<Matrix>(2), {"cpu:0", "cpu:1"});
}
