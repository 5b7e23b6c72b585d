// SPDX-License-Identifier: Apache-2.0
#include <lockstep/device/device.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/optim/adam.hpp>
#include <lockstep/optim/adamw.hpp>
#include <lockstep/optim/kernels.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/sparse.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cudasim/cudasim.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda/launches.hpp"
#include "support/varied.hpp"

// How many kernels a GPU is asked for: a launch costs the host microseconds, whatever it does.
namespace lockstep::cuda {
namespace optim_test {

using lockstep::testing::all_close;
using lockstep::testing::expect_error;
using lockstep::testing::launched;
using lockstep::testing::varied;

using Names = std::vector<std::string>;

// Of `count` parameters the first has one element, the second two, …
template <class T = float>
std::vector<Tensor> parameters_on(const Device& device, std::size_t count) {
  std::vector<Tensor> parameters;
  for (std::size_t i = 0; i < count; ++i) {
    parameters.push_back(varied<T>({static_cast<std::int64_t>(i) + 1}, i, device).requires_grad_());
  }
  return parameters;
}

void give_gradients(const std::vector<Tensor>& parameters, std::size_t seed) {
  for (const Tensor& parameter : parameters) {
    parameter.set_grad(parameter.dtype() == Dtype::f64
                           ? varied<double>(parameter.sizes(), seed++, parameter.device())
                           : varied<float>(parameter.sizes(), seed++, parameter.device()));
  }
}

void expect_close(const std::vector<Tensor>& ours, const std::vector<Tensor>& expected) {
  ASSERT_EQ(ours.size(), expected.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    EXPECT_TRUE(all_close(ours[i].detach(), expected[i].detach(), 1e-6, 1e-6)) << i;
  }
}

// What the kernels do, and how many there are once there is a state: a step on a GPU.
template <class Optimizer, class Options>
Names kernels_of_step(const Options& options, std::size_t count) {
  const std::vector<Tensor> ours = parameters_on("cuda:0", count);
  const std::vector<Tensor> expected = parameters_on("cpu:0", count);
  Optimizer on_gpu(ours, options);
  Optimizer on_host(expected, options);
  Names kernels;
  for (std::size_t step = 0; step < 3; ++step) {
    give_gradients(ours, step);
    give_gradients(expected, step);
    kernels = launched([&] { on_gpu.step(); });
    on_host.step();
  }
  expect_close(ours, expected);
  return kernels;
}

TEST(CudaOptim, OneKernelServesManyParameters) {
  const Names one{"TogetherKernel"};
  EXPECT_EQ(kernels_of_step<optim::SGD>(optim::SGDOptions{.lr = 0.1}, 29), one);
  EXPECT_EQ(kernels_of_step<optim::SGD>(
                optim::SGDOptions{.lr = 0.1, .momentum = 0.9, .dampening = 0.5}, 29),
            one);
  EXPECT_EQ(kernels_of_step<optim::Adam>(optim::AdamOptions{.lr = 0.1}, 29), one);
  EXPECT_EQ(kernels_of_step<optim::AdamW>(optim::AdamWOptions{.lr = 0.1}, 29), one);
}

TEST(CudaOptim, WhatDoesNotFitGoesIntoTheNext) {
  constexpr std::size_t most = detail::TogetherKernel<detail::SgdMomentumKernel<float>>::kMost;
  static_assert(most >= 32);
  static_assert(sizeof(detail::TogetherKernel<detail::AdamKernel<double>>) <= 4096 - 2 * 8);
  const optim::SGDOptions options{.lr = 0.1, .momentum = 0.9};
  EXPECT_EQ(kernels_of_step<optim::SGD>(options, most), Names{"TogetherKernel"});
  EXPECT_EQ(kernels_of_step<optim::SGD>(options, most + 1),
            (Names{"TogetherKernel", "SgdMomentumKernel"}));
  EXPECT_EQ(kernels_of_step<optim::SGD>(options, 2 * most + 2), Names(3, "TogetherKernel"));
}

TEST(CudaOptim, EachDtypeAndDeviceHasItsOwn) {
  std::vector<Tensor> all;
  const auto add = [&all](const std::vector<Tensor>& tensors) {
    all.insert(all.end(), tensors.begin(), tensors.end());
  };
  add(parameters_on("cuda:0", 3));
  add(parameters_on("cuda:1", 3));
  add(parameters_on<double>("cuda:1", 3));
  add(parameters_on<double>("cuda:0", 3));
  optim::SGD sgd(all, {.lr = 0.1});
  give_gradients(all, 1);
  EXPECT_EQ(launched([&] { sgd.step(); }), Names(4, "TogetherKernel"));
}

TEST(CudaOptim, GroupsGoTogetherAndWhatHasNoGradientStays) {
  const std::vector<Tensor> body = parameters_on("cuda:0", 3);
  const std::vector<Tensor> head = parameters_on("cuda:0", 2);
  optim::SGD sgd({{.params = body, .lr = 0.5}, {.params = head}}, {.lr = 0.25});
  give_gradients(body, 1);
  body[1].set_grad({});
  give_gradients(head, 1);
  EXPECT_EQ(launched([&] { sgd.step(); }), Names{"TogetherKernel"});
  const auto after = [](std::size_t i, std::size_t seed, double lr) {
    const auto size = static_cast<std::int64_t>(i) + 1;
    return varied<float>({size}, i).to("cpu") - varied<float>({size}, seed).to("cpu") * lr;
  };
  EXPECT_TRUE(all_close(body[0].detach(), after(0, 1, 0.5)));
  EXPECT_TRUE(all_close(body[1].detach(), after(1, 1, 0)));
  EXPECT_TRUE(all_close(body[2].detach(), after(2, 3, 0.5)));
  EXPECT_TRUE(all_close(head[0].detach(), after(0, 1, 0.25)));
  EXPECT_TRUE(all_close(head[1].detach(), after(1, 2, 0.25)));
}

TEST(CudaOptim, ALargeParameterHasOneOfItsOwn) {
  const Tensor large = zeros({1 << 20}, {.device = "cuda:0"}).requires_grad_();
  std::vector<Tensor> all = parameters_on("cuda:0", 4);
  all.insert(all.begin() + 2, large);
  optim::SGD sgd(all, {.lr = 0.1});
  give_gradients(all, 1);
  large.set_grad(ones({1 << 20}, {.device = "cuda:0"}));
  EXPECT_EQ(launched([&] { sgd.step(); }), (Names{"SgdKernel", "TogetherKernel"}));
  EXPECT_EQ(large.detach().to("cpu").to_vector<float>().back(), -0.1F);
}

// Strided parameters and gradients are changed by way of copies, and sparse gradients row by row,
// while kernels for others wait.
std::vector<Tensor> step_through_copies(const Device& device) {
  std::vector<Tensor> all;
  const auto matrix = [&](std::size_t seed) { return varied<float>({3, 2}, seed, device); };
  for (std::size_t i = 0; i < 3; ++i) {
    all.push_back(matrix(i).requires_grad_());
    all.push_back(transpose(matrix(i + 1), 0, 1).detach().requires_grad_());
  }
  optim::SGD plain(all, {.lr = 0.1});
  optim::SGD moving(all, {.lr = 0.1, .momentum = 0.9});
  for (std::size_t step = 0; step < 2; ++step) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Tensor strided = transpose(varied<float>({2, 3}, i + step, device), 0, 1);
      all[i].set_grad(i % 2 == 0 && i < 3 ? strided
                                          : varied<float>(all[i].sizes(), i + step, device));
    }
    const Tensor rows = from_values<std::int64_t>({2, 0}, {1, 2}, device);
    all[4].set_grad(sparse_coo_tensor(rows, varied<float>({2, 2}, step, device), {3, 2}));
    plain.step();
    moving.step();
  }
  return all;
}

TEST(CudaOptim, ALargeParameterComesBehindThatInTheSameMemory) {
  const Tensor memory = ones({1 << 20}, {.device = "cuda:0"});
  const Tensor part = memory.narrow(0, 0, 10).detach().requires_grad_();
  const Tensor large = memory.detach().requires_grad_();
  part.set_grad(full({10}, 2, {.device = "cuda:0"}));
  large.set_grad(ones({1 << 20}, {.device = "cuda:0"}));
  optim::SGD(std::vector{part, large}, {.lr = 1, .weight_decay = 1}).step();
  EXPECT_EQ(memory.narrow(0, 0, 1).item(), -1);  // 1 − (2 + 1) = −2, and then −2 − (1 − 2)
}

TEST(CudaOptim, CopiesLiveUntilTheKernelsHaveThem) {
  expect_close(step_through_copies("cuda:0"), step_through_copies("cpu:0"));
}

// One after the other, as on a host.
TEST(CudaOptim, ParametersInTheSameMemoryAreNotChangedAtOnce) {
  const Tensor memory = varied<float>({6}, 1, "cuda:0");
  const auto part = [&](std::int64_t from, std::int64_t size) {
    return memory.narrow(0, from, size).detach().requires_grad_();
  };
  const Tensor strided =
      transpose(memory.narrow(0, 0, 4).reshape({2, 2}), 0, 1).detach().requires_grad_();
  const std::vector<Tensor> all = {part(0, 2), part(2, 2), part(3, 3), part(5, 1), strided};
  optim::SGD sgd(all, {.lr = 0.5});
  for (const Tensor& tensor : all) tensor.set_grad(ones(tensor.sizes(), tensor.options()));
  const Names kernels = launched([&] { sgd.step(); });
  const Names expected{"TogetherKernel", "SgdKernel", "SgdKernel"};
  ASSERT_GT(kernels.size(), expected.size());
  EXPECT_EQ(Names(kernels.begin(), kernels.begin() + 3), expected);
  EXPECT_TRUE(all_close(
      memory, varied<float>({6}, 1) -
                  from_values(std::vector<float>{1, 1, 1, 1.5, .5, 1}, {6}, Device("cpu:0"))));
}

// The state of the parameters before it has changed: they have to.
TEST(CudaOptim, AStepThatFailsHasChangedWhatCameBefore) {
  const std::vector<Tensor> all = parameters_on("cuda:0", 3);
  optim::SGD sgd(all, {.lr = 1, .momentum = 0.5});
  give_gradients(all, 1);
  sgd.step();
  const Tensor before = all[1].detach().clone();
  for (const NamedTensor& entry : sgd.state_dict()) {
    if (entry.name == "state.2.momentum_buffer") entry.tensor.set_data(zeros(all[2].sizes()));
  }
  give_gradients(all, 2);
  const Names kernels = launched([&] {
    cudasim::fail_next("cudaMemcpyAsync", cudaErrorInvalidValue);  // of that to the GPU
    expect_error<CudaError>([&] { sgd.step(); }, {"cudaMemcpyAsync"});
  });
  EXPECT_EQ(kernels, Names{"TogetherKernel"});
  EXPECT_FALSE(all_close(all[1].detach(), before));
}

}  // namespace optim_test
}  // namespace lockstep::cuda
