// expect: cannot be divided among devices: it points to tensors.*hold them by value
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/parallel/scatter_gather.hpp>

#include <memory>
#include <optional>

struct Batch {
#ifdef LOCKSTEP_CONTROL
  std::optional<lockstep::Tensor> images;
#else
  std::unique_ptr<lockstep::Tensor> images;
#endif
};

int main() {
  const Batch batch;
  (void)lockstep::scatter(batch, {"cpu:0", "cpu:1"});
}
