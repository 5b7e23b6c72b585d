// expect: specialisation of tensor_traits lacks a static member `std::vector<T> broadcast
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/parallel/scatter_gather.hpp>

#include <cstdint>
#include <vector>

struct Matrix {
  std::vector<double> values;
};

template <>
struct lockstep::tensor_traits<Matrix> {
  static bool defined(const Matrix&) { return true; }
  static Device device(const Matrix&) { return {}; }
  static std::int64_t dim(const Matrix&) { return 2; }
  static std::int64_t size(const Matrix&, std::int64_t /*dim*/) { return 4; }
  static std::vector<Matrix> scatter(const Matrix& m, const std::vector<Device>& devices,
                                     const std::vector<std::int64_t>& /*sizes*/,
                                     std::int64_t /*dim*/) {
    return std::vector(devices.size(), m);
  }
#ifdef LOCKSTEP_CONTROL
  static std::vector<Matrix> broadcast(const Matrix& m, const std::vector<Device>& devices) {
    return std::vector(devices.size(), m);
  }
#endif
  static Matrix gather(const std::vector<Matrix>& parts, Device /*device*/, std::int64_t /*dim*/) {
    return parts[0];
  }
};

int main() {
  const auto parts = lockstep::scatter(Matrix(), {"cpu:0", "cpu:1"});
  (void)lockstep::gather(parts, "cpu");
}
