// SPDX-License-Identifier: Apache-2.0
#include "examples/fashion_mnist_training.hpp"
#include "support/environment_variable.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

// The example, unchanged, on one simulated GPU that is listed twice.
namespace lockstep {
namespace cuda_train_fashion_mnist_test {

using testing::EnvironmentVariable;

class TrainFashionMnistOnAGpu : public testing::FashionMnistTraining {};

TEST_F(TrainFashionMnistOnAGpu, TheLossesOfTwentyStepsAreThoseOfHostDevices) {
  const std::string steps = " --epochs 2 --batch-size 10 ";
  const std::vector<double> host = losses("--devices cpu:0,cpu:1" + steps);
  ASSERT_EQ(host.size(), 20U);

  const EnvironmentVariable schedule("CUDASIM_POLICY", "random");
  const EnvironmentVariable print("CUDASIM_PRINT", "1");
  const testing::ProgramResult result = train("--devices cuda:0,cuda:0" + steps);
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.err, "");  // nor has the simulator found anything
  const std::vector<double> gpu = written_losses();
  ASSERT_EQ(gpu.size(), host.size());
  for (std::size_t i = 0; i < host.size(); ++i) EXPECT_NEAR(gpu[i], host[i], 1e-4) << "step " << i;
}

}  // namespace cuda_train_fashion_mnist_test
}  // namespace lockstep
