// expect: cannot be divided among devices: this type cannot be copied.*std::shared_ptr
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/parallel/scatter_gather.hpp>

#include <fstream>
#include <memory>

struct Batch {
  lockstep::Tensor images;
#ifdef LOCKSTEP_CONTROL
  std::shared_ptr<std::ofstream> log;
#else
  std::unique_ptr<std::ofstream> log;
#endif
};

int main() {
  const Batch batch;
  (void)lockstep::scatter(batch, {"cpu:0", "cpu:1"});
}
