// expect: cannot be divided among devices: this class may have tensors in members.*std::shared_ptr
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/parallel/data_parallel.hpp>

class Images {
 public:
  explicit Images(const lockstep::Tensor& pixels) : pixels_(pixels) {}
  const lockstep::Tensor& pixels() const { return pixels_; }

 private:
  lockstep::Tensor pixels_;
};

#ifdef LOCKSTEP_CONTROL
template <>
inline constexpr bool lockstep::shared_by_replicas<Images> = true;
#endif

struct Net {
  lockstep::Tensor forward(const Images& images) { return images.pixels(); }
};

int main() {
  lockstep::DataParallel model{Net{}, {"cpu:0", "cpu:1"}};
  (void)model(Images(lockstep::Tensor()));
}
