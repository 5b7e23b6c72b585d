// expect: the Batch that this sample names needs as many members as the sample
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/data/collate.hpp>

#include <cstdint>
#include <vector>

struct Images {
  lockstep::Tensor pixels;
  lockstep::Tensor labels;
#ifndef LOCKSTEP_CONTROL
  lockstep::Tensor weights;
#endif
};

struct Image {
  lockstep::Tensor pixels;
  std::int64_t label = 0;
  using Batch = Images;
};

int main() {
  const Images batch = lockstep::data::collate(std::vector<Image>(2));
  return static_cast<int>(batch.labels.size(0));
}
