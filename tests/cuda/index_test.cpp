// SPDX-License-Identifier: Apache-2.0
#include <cudasim/twins.hpp>

#include <lockstep/autograd/engine.hpp>
#include <lockstep/ops/embedding.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "support/varied.hpp"

// Sums of rows that indices name, against those of the host.
namespace lockstep::cuda {
namespace index_test {

using lockstep::testing::varied;
using lockstep::testing::varied_leaf;

// To the bit: a row's gradients are added in the order of the indices.
TEST(CudaEmbedding, ItsGradientIsTheHosts) {
  const std::vector<std::int64_t> words{3, 1, 3, 3, 0, 3, 1};
  for (const std::int64_t width : {1, 8, 35}) {
    const auto gradient_on = [&](const Device& device) {
      const Tensor table = varied_leaf<float>({5, width}, 1, device);
      embedding(tensor(words).to(device), table).backward(varied<float>({7, width}, 2, device));
      return table.grad().to("cpu").to_vector<float>();
    };
    EXPECT_EQ(gradient_on("cuda:1"), gradient_on("cpu:0")) << width;
  }
}

}  // namespace index_test
}  // namespace lockstep::cuda
