// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/nn/layer_norm.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cuda/launches.hpp"
#include "support/varied.hpp"

// What a GPU is asked for: a launch costs the host microseconds, whatever its kernel does.
namespace lockstep::cuda {
namespace layer_norm_test {

using lockstep::testing::launched;
using lockstep::testing::varied;
using lockstep::testing::varied_leaf;

using Names = std::vector<std::string>;

TEST(CudaLayerNorm, LaunchesOneKernelForwardAndThreeBackward) {
  const nn::LayerNorm layer{5, {.device = "cuda:0"}};
  const Tensor x = varied_leaf<float>({4, 3, 5}, 1, "cuda:0");
  Tensor y;
  EXPECT_EQ(launched([&] { y = layer(x); }), Names{"LayerNormRows"});
  const Tensor gradient = varied<float>({4, 3, 5}, 2, "cuda:0");
  EXPECT_EQ(launched([&] { y.backward(gradient); }),
            (Names{"SumKernel", "LayerNormGradRows", "SumKernel"}));
}

TEST(CudaLayerNorm, LaunchesNothingForGradientsThatNobodyWants) {
  const nn::LayerNorm layer{5, {.device = "cuda:0"}};
  layer.weight.requires_grad_(false);
  const Tensor gradient = varied<float>({4, 5}, 2, "cuda:0");
  const Tensor y = layer(varied<float>({4, 5}, 1, "cuda:0"));
  EXPECT_EQ(launched([&] { y.backward(gradient); }), Names{"SumKernel"});
  layer.bias.requires_grad_(false);
  const Tensor z = layer(varied_leaf<float>({4, 5}, 1, "cuda:0"));
  EXPECT_EQ(launched([&] { z.backward(gradient); }), Names{"LayerNormGradRows"});
}

}  // namespace layer_norm_test
}  // namespace lockstep::cuda
