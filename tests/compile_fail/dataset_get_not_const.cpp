// expect: this type is no dataset: it needs `size.. const`
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/data/dataloader.hpp>

#ifdef LOCKSTEP_CONTROL
#define CONST const
#else
#define CONST
#endif

struct Ones {
  std::int64_t size() const { return 4; }
  lockstep::Tensor get(std::int64_t /*i*/) CONST { return lockstep::ones({3}); }
};

int main() {
  lockstep::data::DataLoader loader{Ones{}, {.batch_size = 2}};
  for (const lockstep::Tensor& batch : loader) return static_cast<int>(batch.size(0));
}
