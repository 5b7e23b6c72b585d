// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/host/blas.hpp>
#include <lockstep/backend/launch.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/cuda/libraries/cublaslt.hpp>
#include <lockstep/cuda/libraries/precision.hpp>
#include <lockstep/cuda/runtime/error.hpp>
#include <lockstep/ops/linear.hpp>
#include <lockstep/ops/matmul.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/tensor/creation.hpp>

#include <cudasim/cudasim.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <future>
#include <latch>
#include <vector>

#include "support/expect_error.hpp"
#include "support/varied.hpp"

// Matrix products by cuBLASLt, against those of the host.
namespace lockstep::cuda {
namespace matmul_test {

using lockstep::testing::all_close;
using lockstep::testing::throws;
using lockstep::testing::varied;

// Rows of a larger matrix, so that they lie apart in memory.
template <class T>
Tensor slice_of_columns(std::int64_t rows, std::int64_t cols, std::int64_t first, std::size_t seed,
                        Device device) {
  const Tensor whole = varied<T>({rows, cols + 3}, seed, device);
  return lockstep::detail::make_view(whole, {rows, cols}, {cols + 3, 1}, first);
}

template <class T>
void expect_like_on_the_host(std::int64_t m, std::int64_t n, std::int64_t k) {
  const auto product = [&](Device device) {
    std::vector<Tensor> results;
    const Tensor a = varied<T>({m, k}, 1, device);
    const Tensor b = varied<T>({k, n}, 2, device);
    results.push_back(matmul(a, b));
    results.push_back(matmul(varied<T>({k, m}, 3, device).t(), b));
    results.push_back(matmul(a, varied<T>({n, k}, 4, device).t()));
    results.push_back(matmul(varied<T>({k, m}, 3, device).t(), varied<T>({n, k}, 4, device).t()));
    results.push_back(matmul(slice_of_columns<T>(m, k, 2, 5, device), b));
    results.push_back(matmul(a, slice_of_columns<T>(k, n, 1, 6, device)));
    results.push_back(matmul(varied<T>({3, m, k}, 7, device), varied<T>({3, k, n}, 8, device)));
    results.push_back(matmul(varied<T>({3, m, k}, 7, device), b));
    results.push_back(matmul(a, varied<T>({3, k, n}, 8, device)));
    return results;
  };
  const auto on_host = product("cpu:0");
  const auto on_gpu = product("cuda:1");
  for (std::size_t i = 0; i < on_host.size(); ++i) {
    EXPECT_EQ(on_gpu[i].device(), Device("cuda:1"));
    EXPECT_TRUE(all_close(on_gpu[i], on_host[i], 1e-5, 1e-6))
        << "product " << i << " of " << m << ", " << n << ", " << k;
  }
}

TEST(CudaMatmul, IsLikeOnTheHost) {
  struct Sizes {
    std::int64_t m, n, k;
  };
  for (const auto& [m, n, k] : {Sizes{4, 3, 5}, Sizes{1, 6, 4}, Sizes{6, 1, 3}, Sizes{1, 1, 1},
                                Sizes{17, 33, 8}, Sizes{3, 4, 0}, Sizes{0, 4, 3}, Sizes{4, 0, 3}}) {
    expect_like_on_the_host<float>(m, n, k);
    expect_like_on_the_host<double>(m, n, k);
  }
}

TEST(CudaMatmul, TheBiasOfALinearLayerIsAdded) {
  const auto layer = [](auto value, Device device) {
    using T = decltype(value);
    const Tensor x = varied<T>({7, 5}, 1, device);
    const Tensor weight = varied<T>({4, 5}, 2, device);
    const Tensor biases = varied<T>({8}, 3, device);
    std::vector<Tensor> results;
    // All but the first are less aligned than cuBLASLt is given them.
    for (std::int64_t first = 0; first < 4; ++first) {
      results.push_back(linear(x, weight, lockstep::detail::make_view(biases, {4}, {1}, first)));
    }
    results.push_back(linear(varied<T>({7, 0}, 1, device), varied<T>({4, 0}, 1, device),
                             varied<T>({4}, 3, device)));
    return results;
  };
  const auto compare = [&](auto value) {
    const auto on_host = layer(value, "cpu:0");
    const auto on_gpu = layer(value, "cuda:0");
    for (std::size_t i = 0; i < on_host.size(); ++i) {
      EXPECT_TRUE(all_close(on_gpu[i], on_host[i], 1e-5, 1e-6)) << "layer " << i;
    }
  };
  compare(float{});
  compare(double{});
}

// What no operation of the library asks for yet.
TEST(CudaMatmul, ScalesTheProductAndWhatIsThere) {
  const auto scaled = [](Device device, std::int64_t k) {
    const Tensor a = varied<float>({3, k}, 1, device);
    const Tensor b = varied<float>({k, 2}, 2, device);
    Tensor c = varied<float>({3, 2}, 3, device);
    const Stream stream = current_stream(device);
    lockstep::detail::Gemm<float> call{.a = lockstep::detail::input<float>(a),
                                       .b = lockstep::detail::input<float>(b),
                                       .bias = {},
                                       .c = lockstep::detail::output<float>(c, stream),
                                       .m = 3,
                                       .n = 2,
                                       .k = k,
                                       .lda = std::max<std::int64_t>(k, 1),
                                       .ldb = 2,
                                       .ldc = 2};
    call.alpha = 0.5F;
    call.beta = -2;
    launch_call(stream, call);
    return c;
  };
  for (const std::int64_t k : {4, 0}) {
    EXPECT_TRUE(all_close(scaled("cuda:0", k), scaled("cpu:0", k), 1e-5, 1e-6)) << "k = " << k;
  }
}

TEST(CudaMatmul, ThreadsMultiplyAtOnce) {
  constexpr std::int64_t kTurns = 20;
  const auto product = [](std::int64_t turn, Device device) {  // a shape of its own each turn
    return matmul(varied<float>({turn + 1, 8}, 1, device), varied<float>({8, 7}, 2, device));
  };
  std::vector<std::vector<Tensor>> results(8);
  std::latch start(8);
  std::vector<std::future<void>> threads;
  for (int i = 0; i < 8; ++i) {
    threads.push_back(std::async(std::launch::async, [&, i] {
      const Device device(DeviceType::cuda, i % 2);  // four threads a device
      start.arrive_and_wait();
      for (std::int64_t turn = 0; turn < kTurns; ++turn) {
        results[static_cast<std::size_t>(i)].push_back(product(turn, device));
      }
    }));
  }
  for (std::future<void>& thread : threads) thread.get();
  for (const auto& of_thread : results) {
    for (std::int64_t turn = 0; turn < kTurns; ++turn) {
      EXPECT_TRUE(
          all_close(of_thread[static_cast<std::size_t>(turn)], product(turn, "cpu:0"), 1e-5, 1e-6));
    }
  }
}

class Precision : public ::testing::Test {
 protected:
  void TearDown() override { set_float32_matmul_precision(MatmulPrecision::highest); }

  template <class T>
  static double product() {
    const Tensor a = full({1, 1}, 1 + 0x1p-9, {.dtype = dtype_of<T>, .device = "cuda:0"});
    const Tensor b = full({1, 1}, 1 + 0x1p-12, {.dtype = dtype_of<T>, .device = "cuda:0"});
    return static_cast<double>(matmul(a, b).template to_vector<T>()[0]);
  }
};

TEST_F(Precision, IsTheHighestUnlessAnotherIsAskedFor) {
  EXPECT_EQ(float32_matmul_precision(), MatmulPrecision::highest);
  const double exact = (1 + 0x1p-9) * (1 + 0x1p-12);
  EXPECT_EQ(product<float>(), exact);
  set_float32_matmul_precision(MatmulPrecision::high);
  EXPECT_EQ(product<float>(), 1 + 0x1p-9);
  set_float32_matmul_precision(MatmulPrecision::medium);
  EXPECT_EQ(product<float>(), 1);
  EXPECT_EQ(product<double>(), exact);
  set_float32_matmul_precision(MatmulPrecision::highest);
  EXPECT_EQ(product<float>(), exact);
}

TEST_F(Precision, MustBeOneOfTheThree) {
  EXPECT_TRUE(throws<ValueError>(
      [] { set_float32_matmul_precision(static_cast<MatmulPrecision>(3)); }, "got the value 3"));
  EXPECT_EQ(float32_matmul_precision(), MatmulPrecision::highest);
}

TEST(CudaMatmul, NoRoomForTheWorkSpaceIsAnErrorAndTheNextProductIsRight) {
  const Device device = "cuda:0";
  const Tensor a = varied<float>({3, 4}, 1, device);  // the simulated library wants some for k = 4
  const Tensor b = varied<float>({4, 2}, 2, device);
  Tensor c = zeros({3, 2}, {.device = device});
  const auto multiply = [&] {
    const Stream stream = current_stream(device);
    launch_call(stream,
                lockstep::detail::Gemm<float>{.a = lockstep::detail::input<float>(a),
                                              .b = lockstep::detail::input<float>(b),
                                              .bias = {},
                                              .c = lockstep::detail::output<float>(c, stream),
                                              .m = 3,
                                              .n = 2,
                                              .k = 4,
                                              .lda = 4,
                                              .ldb = 2,
                                              .ldc = 2});
  };
  cudasim::fail_next("cudaMallocFromPoolAsync", cudaErrorMemoryAllocation, 2);
  EXPECT_TRUE(throws<OutOfMemoryError>(multiply, "cuda:0 is out of memory"));
  multiply();
  EXPECT_TRUE(all_close(c, matmul(varied<float>({3, 4}, 1), varied<float>({4, 2}, 2)), 1e-5, 1e-6));
}

TEST(CudaMatmul, AStatusIsReportedWithCallCodeAndDevice) {
  EXPECT_TRUE(throws<CudaError>(
      [] { check(CUBLAS_STATUS_ALLOC_FAILED, "cublasLtCreate", Device("cuda:3")); },
      "cublasLtCreate on cuda:3", "CUBLAS_STATUS_ALLOC_FAILED, 3"));
}

}  // namespace matmul_test
}  // namespace lockstep::cuda
