// SPDX-License-Identifier: Apache-2.0
#include <cudasim/cudasim.hpp>
#include <cudasim/device_array.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <vector>

#include <cudnn.h>

namespace cudasim {
namespace cudnn_softmax_test {

using testing::Library;
using testing::numbers;
using testing::reported;
using testing::Work;

using CudnnSoftmax = Library;

// A tensor of 2 images, 3 channels and 4 pixels, and a handle.
struct Softmax {
  cudnnHandle_t handle = nullptr;
  cudnnTensorDescriptor_t shape = nullptr;

  explicit Softmax(Work& work) {
    EXPECT_EQ(cudnnCreate(&handle), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(cudnnSetStream(handle, work.stream()), CUDNN_STATUS_SUCCESS);
    cudnnCreateTensorDescriptor(&shape);
    cudnnSetTensor4dDescriptor(shape, CUDNN_TENSOR_NCHW, CUDNN_DATA_DOUBLE, 2, 3, 4, 1);
  }
  Softmax(const Softmax&) = delete;
  Softmax& operator=(const Softmax&) = delete;
  ~Softmax() {
    EXPECT_EQ(cudnnDestroyTensorDescriptor(shape), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(cudnnDestroy(handle), CUDNN_STATUS_SUCCESS);
  }

  cudnnStatus_t run(const double* x, double* y,
                    cudnnSoftmaxAlgorithm_t algorithm = CUDNN_SOFTMAX_ACCURATE, double alpha = 1,
                    cudnnTensorDescriptor_t result = nullptr) const {
    const double beta = 0;
    return cudnnSoftmaxForward(handle, algorithm, CUDNN_SOFTMAX_MODE_CHANNEL, &alpha, shape, x,
                               &beta, result ? result : shape, y);
  }
};

TEST_F(CudnnSoftmax, IsThatOfTheDefinition) {
  Work work;
  const Softmax softmax(work);
  const std::vector<double> x = numbers<double>(24, 1);
  const double* const in = work.array(x);
  double* const out = work.room<double>(24);
  double* const logs = work.room<double>(24);
  ASSERT_EQ(softmax.run(in, out), CUDNN_STATUS_SUCCESS);
  ASSERT_EQ(softmax.run(in, logs, CUDNN_SOFTMAX_LOG), CUDNN_STATUS_SUCCESS);
  const std::vector<double> found = work.values(out, 24);
  const std::vector<double> found_logs = work.values(logs, 24);
  for (std::size_t i = 0; i < 24; ++i) {
    const std::size_t first = i / 12 * 12 + i % 4;
    const double sum = std::exp(x[first]) + std::exp(x[first + 4]) + std::exp(x[first + 8]);
    EXPECT_NEAR(found[i], std::exp(x[i]) / sum, 1e-15) << i;
    EXPECT_NEAR(found_logs[i], x[i] - std::log(sum), 1e-13) << i;
  }
}

TEST_F(CudnnSoftmax, CallsThatCannotBeAreReported) {
  Work work;
  const Softmax softmax(work);
  double* const x = work.array(numbers<double>(24, 1));
  EXPECT_EQ(softmax.run(x, nullptr), CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  EXPECT_TRUE(reported("a null pointer"));
  EXPECT_EQ(softmax.run(x, x, CUDNN_SOFTMAX_FAST), CUDNN_STATUS_NOT_SUPPORTED);
  EXPECT_TRUE(reported("that may overflow"));
  EXPECT_EQ(softmax.run(x, x, CUDNN_SOFTMAX_LOG, 2), CUDNN_STATUS_NOT_SUPPORTED);
  EXPECT_TRUE(reported("other factors"));
  const Softmax other(work);
  cudnnSetTensor4dDescriptor(other.shape, CUDNN_TENSOR_NCHW, CUDNN_DATA_DOUBLE, 2, 3, 5, 1);
  EXPECT_EQ(softmax.run(x, x, CUDNN_SOFTMAX_LOG, 1, other.shape), CUDNN_STATUS_BAD_PARAM);
  EXPECT_TRUE(reported("of another shape"));
}

TEST_F(CudnnSoftmax, ItsWorkIsOrderedLikeAnyOther) {
  without_fibers();
  Work one;
  Work two;
  const Softmax softmax(two);
  double* const x = one.array(numbers<double>(24, 1));
  ASSERT_EQ(cudaMemsetAsync(x, 0, 24 * sizeof(double), one.stream()), cudaSuccess);
  ASSERT_EQ(softmax.run(x, two.room<double>(24)), CUDNN_STATUS_SUCCESS);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_TRUE(reported("cudnnSoftmaxForward"));
}

}  // namespace cudnn_softmax_test
}  // namespace cudasim
