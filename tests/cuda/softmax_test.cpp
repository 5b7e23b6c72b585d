// SPDX-License-Identifier: Apache-2.0
#include <cudasim/twins.hpp>

#include <lockstep/autograd/engine.hpp>
#include <lockstep/cuda/kernels/loss.hpp>
#include <lockstep/cuda/kernels/reduce.hpp>
#include <lockstep/cuda/kernels/softmax.hpp>
#include <lockstep/cuda/launch/lanes.hpp>
#include <lockstep/ops/reduction.hpp>
#include <lockstep/ops/softmax.hpp>
#include <lockstep/tensor/empty.hpp>

#include <cudasim/cudasim.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cuda/launches.hpp"
#include "support/varied.hpp"

// Softmax by cuDNN, against that of the host.
namespace lockstep::cuda {
namespace softmax_test {

using detail::Axis;
using lockstep::testing::all_close;
using lockstep::testing::launched;
using lockstep::testing::varied;
using lockstep::testing::varied_leaf;

TEST(CudaSoftmax, IsLikeOnTheHost) {
  for (const Shape& shape : {Shape{4, 5, 3}, Shape{1, 7}, Shape{3, 1}, Shape{2, 40, 1, 2}}) {
    for (std::int64_t dim = 0; dim < static_cast<std::int64_t>(shape.size()); ++dim) {
      const auto expect_like = [&](const auto& of, auto value, double tolerance) {
        using T = decltype(value);
        EXPECT_TRUE(all_close(of(varied<T>(shape, 1, "cuda:1"), dim),
                              of(varied<T>(shape, 1, "cpu:0"), dim), tolerance, tolerance))
            << shape << " along " << dim;
      };
      expect_like(softmax, double{}, 1e-14);
      expect_like(log_softmax, double{}, 1e-14);
      expect_like(softmax, float{}, 1e-6);
      expect_like(log_softmax, float{}, 1e-6);
    }
  }
}

TEST(CudaSoftmax, IsOneCallOfTheLibrary) {
  const Tensor x = varied<float>({4, 5, 3}, 1, "cuda:0");
  cudasim::record_calls(true);
  (void)softmax(x, 1);
  std::vector<std::string> issued;
  for (const cudasim::Call& call : cudasim::take_calls()) {
    if (call.function == "enqueue" || call.function == "cudaLaunchKernel") {
      issued.push_back(call.name);
    }
  }
  cudasim::record_calls(false);
  EXPECT_EQ(issued, std::vector<std::string>{"cudnnSoftmaxForward"});
}

TEST(CudaSoftmax, MoreElementsThanTheLibraryCountsGoInParts) {
  using Parts = std::vector<std::pair<std::size_t, std::size_t>>;
  const auto parts_of = [](const Shape& shape, std::size_t dim, std::size_t most) {
    Parts parts;
    const bool possible = in_softmax_parts(
        Axis(shape, dim), most,
        [&](std::size_t first, std::size_t outer) { parts.emplace_back(first, outer); });
    EXPECT_EQ(possible, !parts.empty());
    return parts;
  };
  EXPECT_EQ(parts_of({5, 2, 3}, 1, 30), (Parts{{0, 5}}));
  EXPECT_EQ(parts_of({5, 2, 3}, 1, 17), (Parts{{0, 2}, {12, 2}, {24, 1}}));
  EXPECT_EQ(parts_of({5, 2, 3}, 1, 6), (Parts{{0, 1}, {6, 1}, {12, 1}, {18, 1}, {24, 1}}));
  EXPECT_EQ(parts_of({5, 2, 3}, 1, 5), Parts{});
}

TEST(CudaSoftmax, ItsGradientIsOneKernel) {
  const Tensor x = varied_leaf<float>({4, 5, 3}, 1, "cuda:0");
  const Tensor gradient = varied<float>({4, 5, 3}, 2, "cuda:0");
  for (const bool log : {false, true}) {
    const Tensor y = log ? log_softmax(x, 1) : softmax(x, 1);
    EXPECT_EQ(launched([&] { y.backward(gradient); }).front(), "SoftmaxGradRows");
  }
}

TEST(CudaSoftmax, ItsGradientIsLikeOnTheHost) {
  const auto gradient_on = [](const Device& device, const Shape& shape, std::int64_t dim, bool log,
                              auto value) {
    using T = decltype(value);
    const Tensor x = varied_leaf<T>(shape, 1, device);
    (log ? log_softmax(x, dim) : softmax(x, dim)).backward(varied<T>(shape, 2, device));
    return x.grad();
  };
  for (const Shape& shape : {Shape{4, 5, 3}, Shape{1, 7}, Shape{3, 1}, Shape{2, 3, 40}}) {
    for (std::int64_t dim = 0; dim < static_cast<std::int64_t>(shape.size()); ++dim) {
      for (const bool log : {false, true}) {
        const auto expect_like = [&](auto value, double tolerance) {
          EXPECT_TRUE(all_close(gradient_on("cuda:1", shape, dim, log, value),
                                gradient_on("cpu:0", shape, dim, log, value), tolerance, tolerance))
              << shape << " along " << dim << ", log " << log;
        };
        expect_like(double{}, 1e-14);
        expect_like(float{}, 1e-6);
      }
    }
  }
}

// The kernel for what cannot go in parts, as one lane runs it.
TEST(CudaSoftmax, TheKernelIsLikeTheHost) {
  for (const Shape& shape : {Shape{4, 5, 3}, Shape{3, 1}, Shape{2, 3, 40}}) {
    for (std::size_t dim = 0; dim < shape.size(); ++dim) {
      const Tensor x = varied<double>(shape, 1, "cpu:0");
      const Axis axis(shape, dim);
      for (const bool log : {false, true}) {
        const Tensor y = empty(shape, x.options());
        const auto count = static_cast<std::size_t>(x.numel());
        const SoftmaxRows<double> kernel{{x.const_data_ptr<double>(), count},
                                         {y.mutable_data_ptr<double>(), count},
                                         axis,
                                         log,
                                         axis.inner >= kLanes};
        EXPECT_EQ(lanes_of_row(kernel), axis.inner >= kLanes ? 1U : kLanes);
        for (std::size_t row = 0; row < axis.outer * axis.inner; ++row) kernel(row, Lanes{});
        const auto along = static_cast<std::int64_t>(dim);
        EXPECT_TRUE(all_close(y, log ? log_softmax(x, along) : softmax(x, along), 1e-14, 1e-14))
            << shape << " along " << dim << ", log " << log;
      }
    }
  }
}

// With a warp each, rows as long as a vocabulary would leave most of a GPU idle.
TEST(CudaSoftmax, LongRowsHaveABlockEach) {
  for (const auto& [columns, lanes] :
       {std::pair<std::int64_t, unsigned>{1023, kLanes}, {1024, kThreads}}) {
    const Axis axis(Shape{2, columns}, 1);
    EXPECT_EQ(lanes_of_row(SoftmaxRows<float>{{}, {}, axis, false, false}), lanes);
    EXPECT_EQ(lanes_of_row(SoftmaxGradRows<float, false>{{{}, {}, {}, axis}, false}), lanes);
    EXPECT_EQ(lanes_of_row(ClassLossRows<float>{
                  {{}, {}, {}, {}, axis, Reduction::none, true}, {}, {}, false}),
              lanes);
    EXPECT_EQ(lanes_of_row(ArgmaxKernel<float>{{{}, {}, axis}, false}), lanes);
  }
}

}  // namespace softmax_test
}  // namespace lockstep::cuda
