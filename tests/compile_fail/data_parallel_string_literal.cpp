// expect: cannot be divided among devices: a C array cannot be copied: use.*std::string
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/parallel/data_parallel.hpp>

#include <string>

struct Pool {
  lockstep::Tensor forward(const lockstep::Tensor& x, const std::string& /*mode*/) { return x; }
};

int main() {
  lockstep::DataParallel model{Pool{}, {"cpu:0", "cpu:1"}};
#ifdef LOCKSTEP_CONTROL
  (void)model(lockstep::Tensor(), std::string("max"));
#else
  (void)model(lockstep::Tensor(), "max");
#endif
}
