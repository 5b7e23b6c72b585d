// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/nn/conv.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/parallel/comm/scatter.hpp>
#include <lockstep/parallel/data_parallel.hpp>
#include <lockstep/parallel/functions.hpp>
#include <lockstep/parallel/scatter_gather.hpp>
#include <lockstep/tensor/memory_format.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/varied.hpp"

namespace lockstep {
namespace parallel_memory_format_test {

using testing::all_close;
using testing::varied;

constexpr MemoryFormat kLast = MemoryFormat::channels_last;
const std::vector<Device> kTwo = {"cpu:0", "cpu:1"};

Tensor images(Device device = "cpu") {
  return varied({4, 3, 2, 6}).to(device).contiguous(kLast).detach();
}

TEST(MemoryFormat, S31EachChunkIsChannelsLast) {
  for (const Device source : {Device("cpu"), Device("cpu:0")}) {
    for (const std::int64_t dim : {0, 2, 3, -1}) {
      const Tensor x = images(source);
      const auto chunks = comm::scatter(x, kTwo, {}, dim);
      ASSERT_EQ(chunks.size(), 2U);
      for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_TRUE(chunks[i].is_contiguous(kLast) || chunks[i].device() == source) << dim;
        const std::int64_t half = x.size(dim) / 2;
        EXPECT_EQ(chunks[i].to_vector<double>(),
                  x.narrow(dim, static_cast<std::int64_t>(i) * half, half).to_vector<double>());
      }
    }
  }
  EXPECT_TRUE(scatter(varied({4, 3, 2, 6}).to("cpu"), kTwo)[1].is_contiguous());
}

TEST(MemoryFormat, G20TheResultOfChannelsLastInputsIsSo) {
  for (const std::int64_t dim : {0, 1, 3}) {
    const std::vector<Tensor> parts = {images("cpu:0"), images("cpu:1") * 2};
    std::vector<Tensor> last;
    for (const Tensor& part : parts) last.push_back(part.contiguous(kLast));
    const Tensor expected =
        gather(std::vector<Tensor>{parts[0].contiguous(), parts[1].contiguous()}, "cpu:1", dim);
    const Tensor whole = gather(last, "cpu:1", dim);
    EXPECT_TRUE(whole.is_contiguous(kLast)) << dim;
    EXPECT_FALSE(whole.is_contiguous()) << dim;
    EXPECT_TRUE(expected.is_contiguous()) << dim;
    EXPECT_EQ(whole.to_vector<double>(), expected.to_vector<double>()) << dim;
    // One that is not decides.
    EXPECT_TRUE(
        gather(std::vector<Tensor>{last[0], parts[1].contiguous()}, "cpu:0", dim).is_contiguous());
  }
}

struct Stack {
  nn::Conv2d first{3, 4, 3, {.padding = 1, .dtype = Dtype::f64, .device = "cpu:0"}};
  nn::Conv2d second{4, 2, {2, 1}, {.dtype = Dtype::f64, .device = "cpu:0"}};
  Tensor forward(const Tensor& x) const { return second(first(x)); }
};

Stack mixed_stack() {
  Stack stack;
  stack.first.weight.set_data(varied({4, 3, 3, 3}, 5).to("cpu:0").contiguous(kLast).detach());
  stack.first.bias.set_data(varied({4}, 6).to("cpu:0"));
  stack.second.weight.set_data(varied({2, 4, 2, 1}, 7).to("cpu:0"));
  stack.second.bias.set_data(varied({2}, 8).to("cpu:0"));
  return stack;
}

TEST(MemoryFormat, D24GradientsKeepEachParametersLayout) {
  const Stack plain = mixed_stack();
  const Stack original = mixed_stack();
  DataParallel model{original, kTwo};
  optim::SGD plain_sgd{parameters(plain), {.lr = 0.1, .momentum = 0.9}};
  optim::SGD sgd{parameters(original), {.lr = 0.1, .momentum = 0.9}};
  for (int step = 0; step < 2; ++step) {
    const Tensor x = images("cpu:0");
    plain_sgd.zero_grad();
    sgd.zero_grad();
    square(plain.forward(x)).mean().backward();
    square(model(x)).mean().backward();
    for (const Stack* stack : {&plain, &original}) {
      EXPECT_TRUE(stack->first.weight.grad().is_contiguous(kLast));
      EXPECT_FALSE(stack->first.weight.grad().is_contiguous());
      EXPECT_TRUE(stack->second.weight.grad().is_contiguous());
    }
    plain_sgd.step();
    sgd.step();
  }
  for (std::size_t i = 0; i < parameters(plain).size(); ++i) {
    EXPECT_TRUE(all_close(parameters(original)[i], parameters(plain)[i], 1e-12)) << i;
  }
  EXPECT_EQ(original.first.weight.strides(), plain.first.weight.strides());
  EXPECT_FALSE(original.first.weight.is_contiguous());
}

}  // namespace parallel_memory_format_test
}  // namespace lockstep
