// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/cuda/libraries/cudnn.hpp>
#include <lockstep/cuda/libraries/precision.hpp>
#include <lockstep/cuda/runtime/error.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/conv.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/tensor/creation.hpp>

#include <cudasim/cudasim.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <future>
#include <latch>
#include <vector>

#include "support/expect_error.hpp"
#include "support/varied.hpp"

// Convolutions by cuDNN, against those of the host.
namespace lockstep::cuda {
namespace conv_test {

using lockstep::testing::all_close;
using lockstep::testing::throws;
using lockstep::testing::varied;
using lockstep::testing::varied_leaf;

struct Case {
  Shape x, weight;
  Size2d stride = 1;
  Size2d padding = 0;
  Size2d dilation = 1;
  std::int64_t groups = 1;
};

// The result and the gradients of the three operands.
template <class T>
std::vector<Tensor> passes(const Case& c, Device device) {
  const Tensor x = varied_leaf<T>(c.x, 1, device);
  const Tensor weight = varied_leaf<T>(c.weight, 2, device);
  const Tensor bias = varied_leaf<T>({c.weight[0]}, 3, device);
  const Tensor y = conv2d(x, weight, bias, c.stride, c.padding, c.dilation, c.groups);
  y.backward(varied<T>(y.sizes(), 4, device));
  return {y, x.grad(), weight.grad(), bias.grad()};
}

template <class T>
void expect_like_on_the_host(const Case& c) {
  const auto on_host = passes<T>(c, "cpu:0");
  const auto on_gpu = passes<T>(c, "cuda:1");
  for (std::size_t i = 0; i < on_host.size(); ++i) {
    EXPECT_EQ(on_gpu[i].device(), Device("cuda:1"));
    EXPECT_TRUE(all_close(on_gpu[i], on_host[i], 1e-4, 1e-5))
        << "tensor " << i << " for images " << c.x << " and a weight " << c.weight;
  }
}

TEST(CudaConv, IsLikeOnTheHost) {
  for (const Case& c :
       {Case{{2, 3, 6, 5}, {4, 3, 3, 2}}, Case{{1, 1, 1, 1}, {1, 1, 1, 1}},
        Case{{3, 2, 7, 6}, {2, 2, 3, 3}, {2, 1}, {1, 2}}, Case{{2, 1, 9, 9}, {3, 1, 5, 5}, 3, 2},
        Case{{2, 4, 6, 5}, {6, 2, 3, 2}, 1, 1, 1, 2},
        Case{{2, 3, 7, 6}, {3, 1, 3, 2}, {2, 1}, {1, 2}, {1, 2}, 3}}) {
    expect_like_on_the_host<float>(c);
    expect_like_on_the_host<double>(c);
  }
}

TEST(CudaConv, NothingToSumIsNothing) {
  for (const Case& c :
       {Case{{0, 3, 6, 5}, {4, 3, 3, 2}}, Case{{2, 0, 6, 5}, {4, 0, 3, 2}},
        Case{{2, 3, 6, 5}, {0, 3, 3, 2}}, Case{{2, 3, 0, 5}, {4, 3, 1, 2}, 1, {1, 0}},
        Case{{0, 4, 6, 5}, {4, 2, 3, 2}, 1, 0, 1, 2}}) {
    expect_like_on_the_host<float>(c);
  }
}

TEST(CudaConv, IsDifferentiableTwice) {
  const auto second = [](Device device) {
    const Tensor x = varied_leaf<double>({2, 4, 5, 5}, 1, device);
    const Tensor weight = varied_leaf<double>({6, 2, 3, 3}, 2, device);
    const Tensor y = conv2d(x, weight, {}, 1, 0, 1, 2);
    const auto first = autograd::grad({sum(y * y)}, {x, weight}, {}, {}, true);
    return autograd::grad({sum(first[0] * first[0]) + sum(first[1] * first[1])}, {x, weight});
  };
  const auto on_host = second("cpu:0");
  const auto on_gpu = second("cuda:0");
  for (std::size_t i = 0; i < on_host.size(); ++i) {
    EXPECT_TRUE(all_close(on_gpu[i], on_host[i], 1e-9, 1e-9)) << "gradient " << i;
  }
}

// The geometries differ in their groups or their dilation alone, not in the size of the result.
TEST(CudaConv, APlanIsForOneGroupCountAndOneDilation) {
  const auto convolved = [](std::int64_t groups, Size2d dilation, Device device) {
    const Tensor x = varied<double>({1, 4, 4, 4}, 1, device);
    const Tensor weight = varied<double>({4, 4 / groups, 2, 2}, 2, device);
    return conv2d(x, weight, {}, 3, 0, dilation, groups);
  };
  for (const std::int64_t groups : {1, 2, 4}) {
    for (const Size2d dilation : {Size2d{1, 1}, Size2d{1, 3}, Size2d{2, 1}}) {
      const Tensor y = convolved(groups, dilation, "cuda:0");
      EXPECT_EQ(y.sizes(), (Shape{1, 4, 1, 1}));
      EXPECT_TRUE(all_close(y, convolved(groups, dilation, "cpu:0"), 1e-12, 1e-12))
          << groups << " groups, dilation " << dilation;
    }
  }
}

TEST(CudaConv, ThreadsConvolveAtOnce) {
  const Case c{{2, 2, 5, 5}, {3, 2, 3, 3}};
  const auto expected = passes<float>(c, "cpu:0");
  std::vector<std::vector<Tensor>> results(8);
  std::latch start(8);
  std::vector<std::future<void>> threads;
  for (int i = 0; i < 8; ++i) {
    threads.push_back(std::async(std::launch::async, [&, i] {
      const Device device(DeviceType::cuda, i % 2);  // four threads a device
      start.arrive_and_wait();
      for (int turn = 0; turn < 20; ++turn) {
        results[static_cast<std::size_t>(i)] = passes<float>(c, device);
      }
    }));
  }
  for (std::future<void>& thread : threads) thread.get();
  for (const auto& result : results) {
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(all_close(result[i], expected[i], 1e-4, 1e-5)) << "tensor " << i;
    }
  }
}

TEST(CudaConv, RoundsToTf32OnRequestAlone) {
  const auto convolved = [](auto value) {
    using T = decltype(value);
    const TensorOptions options{.dtype = dtype_of<T>, .device = "cuda:0"};
    const Tensor y =
        conv2d(full({1, 1, 1, 1}, 1 + 0x1p-9, options), full({1, 1, 1, 1}, 1 + 0x1p-12, options));
    return static_cast<double>(y.to_vector<T>()[0]);
  };
  const double exact = (1 + 0x1p-9) * (1 + 0x1p-12);
  EXPECT_EQ(convolved(float{}), exact);
  for (const auto precision : {MatmulPrecision::high, MatmulPrecision::medium}) {
    set_float32_matmul_precision(precision);
    EXPECT_EQ(convolved(float{}), 1 + 0x1p-9);
    EXPECT_EQ(convolved(double{}), exact);
  }
  set_float32_matmul_precision(MatmulPrecision::highest);
  EXPECT_EQ(convolved(float{}), exact);
}

TEST(CudaConv, TakesNoWorkSpaceOfTheHosts) {
  const Device device = "cuda:0";
  const Tensor x = ones({4, 8, 16, 16}, {.device = device});
  const Tensor weight = ones({2, 8, 3, 3}, {.device = device});
  const std::uint64_t before = memory_stats(device).allocated_bytes;
  cudasim::record_calls(true);
  const Tensor y = conv2d(x, weight);
  std::size_t allocations = 0;
  for (const auto& call : cudasim::take_calls()) {
    if (call.function == "cudaMallocFromPoolAsync") ++allocations;
  }
  cudasim::record_calls(false);
  EXPECT_EQ(allocations, 2U);  // the result, and the library's work space
  EXPECT_EQ(memory_stats(device).allocated_bytes - before,
            static_cast<std::uint64_t>(y.numel()) * sizeof(float));
}

TEST(CudaConv, SizesBeyondTheLibrarysAreAnError) {
  const TensorOptions options{.device = "cuda:0"};
  EXPECT_TRUE(throws<ShapeError>(
      [&] {
        (void)conv2d(ones({1, 1, 2, 2}, options), ones({1, 1, 1, 1}, options), {}, 1, 0,
                     Size2d{std::int64_t{1} << 31, 1});
      },
      "a size of 2147483648 is too large for cuDNN"));
}

TEST(CudaConv, AStatusIsReportedWithCallCodeAndDevice) {
  EXPECT_TRUE(throws<CudaError>(
      [] { check(CUDNN_STATUS_NOT_SUPPORTED, "cudnnConvolutionForward", Device("cuda:3")); },
      "cudnnConvolutionForward on cuda:3", "CUDNN_STATUS_NOT_SUPPORTED", "3000"));
}

}  // namespace conv_test
}  // namespace lockstep::cuda
