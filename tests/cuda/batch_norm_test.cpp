// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/module/module.hpp>
#include <lockstep/nn/batch_norm.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cuda/launches.hpp"
#include "support/varied.hpp"

// What a GPU is asked for: a launch costs the host microseconds, whatever its kernel does.
namespace lockstep::cuda {
namespace batch_norm_test {

using lockstep::testing::launched;
using lockstep::testing::varied;
using lockstep::testing::varied_leaf;

using Names = std::vector<std::string>;

TEST(CudaBatchNorm, LaunchesFourKernelsForwardAndFourBackward) {
  const nn::BatchNorm2d layer{5, {.device = "cuda:0"}};
  const Tensor x = varied_leaf<float>({4, 5, 3, 2}, 1, "cuda:0");
  const Tensor gradient = varied<float>({4, 5, 3, 2}, 2, "cuda:0");
  Tensor y;
  const Names forward = launched([&] { y = layer(x); });
  EXPECT_EQ(forward, (Names{"SumKernel", "SumKernel", "BatchScaleKernel", "ChannelElements"}));
  const Names backward = launched([&] { y.backward(gradient); });
  EXPECT_EQ(backward, (Names{"SumKernel", "SumKernel", "BatchGradientKernel", "ChannelElements"}));
}

TEST(CudaBatchNorm, LaunchesNothingForGradientsThatNobodyWants) {
  nn::BatchNorm2d layer{5, {.device = "cuda:0"}};
  layer.weight.requires_grad_(false);
  const Tensor x = varied<float>({4, 5, 3, 2}, 1, "cuda:0");
  const Tensor y = layer(x);
  EXPECT_EQ(launched([&] {
              y.backward(varied<float>({4, 5, 3, 2}, 2, "cuda:0"));
            }),
            Names{"SumKernel"});
  layer.bias.requires_grad_(false);
  EXPECT_FALSE(layer(x).requires_grad());
}

TEST(CudaBatchNorm, LaunchesThreeKernelsInEvaluation) {
  nn::BatchNorm2d layer{5, {.device = "cuda:0"}};
  eval(layer);
  const Tensor x = varied<float>({4, 5, 3, 2}, 1, "cuda:0");
  const NoGradGuard guard;
  EXPECT_EQ(launched([&] { (void)layer(x); }),
            (Names{"UnaryKernel", "BinaryKernel", "ChannelElements"}));
}

}  // namespace batch_norm_test
}  // namespace lockstep::cuda
