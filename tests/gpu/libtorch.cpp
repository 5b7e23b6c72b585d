// SPDX-License-Identifier: Apache-2.0

// LibTorch's modules on GPUs, beside the same on the CPU: DataParallel over a GPU that is listed
// twice and over all that there are, DistributedDataParallel over NCCL. A test says what it lacks.
#include <lockstep/distributed/default_group.hpp>
#include <lockstep/distributed/run.hpp>
#include <lockstep/nccl.hpp>
#include <lockstep/torch.hpp>

#include "torch/distributed_losses.hpp"
#include "torch/nets.hpp"

#include <c10/core/StreamGuard.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace lockstep {
namespace gpu_libtorch {

using distributed::ProcessGroup;
using libtorch::DataParallel;
using libtorch::DistributedDataParallel;
using testing::close;

std::vector<Device> gpus() {
  std::vector<Device> devices;
  const auto count = static_cast<int>(torch::cuda::device_count());
  for (int i = 0; i < count; ++i) devices.emplace_back(DeviceType::cuda, i);
  return devices;
}

constexpr const char* kNoCuda = "this LibTorch has no CUDA, or sees no GPU";
constexpr const char* kOneGpu = "this LibTorch sees one GPU";

struct Net : torch::nn::Cloneable<Net> {
  torch::nn::Linear first{nullptr}, second{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};

  Net() { reset(); }
  void reset() override {
    first = register_module("first", torch::nn::Linear(6, 9));
    norm = register_module("norm", torch::nn::BatchNorm1d(9));
    second = register_module("second", torch::nn::Linear(9, 3));
    to(torch::kFloat64);
  }
  torch::Tensor forward(const torch::Tensor& x) { return second(torch::tanh(norm(first(x)))); }
};

void expect_trains_as_on_cpu(const std::vector<Device>& devices) {
  const auto plain = std::make_shared<Net>();
  plain->norm->eval();  // statistics of parts are not those of the batch
  const auto net = std::dynamic_pointer_cast<Net>(plain->clone());
  net->norm->eval();
  const DataParallel model{net, devices};
  torch::optim::SGD mine(net->parameters(), 0.1), theirs(plain->parameters(), 0.1);
  for (int step = 0; step < 4; ++step) {
    const torch::Tensor x = torch::randn({7, 6}, torch::kFloat64);
    mine.zero_grad();
    theirs.zero_grad();
    const torch::Tensor y = model(x), expected = plain->forward(x);
    EXPECT_EQ(libtorch::detail::lockstep_device(y), devices[0]);
    EXPECT_TRUE(close(y.cpu(), expected, 1e-10));
    y.pow(2).mean().backward();
    expected.pow(2).mean().backward();
    for (std::size_t i = 0; i < plain->parameters().size(); ++i) {
      EXPECT_TRUE(close(net->parameters()[i].grad().cpu(), plain->parameters()[i].grad(), 1e-10));
    }
    mine.step();
    theirs.step();
  }
}

TEST(LibTorchDataParallel, OverOneGpuThatIsListedTwice) {
  if (gpus().empty()) GTEST_SKIP() << kNoCuda;
  expect_trains_as_on_cpu({"cuda:0", "cuda:0"});
}

TEST(LibTorchDataParallel, OverAllGpus) {
  if (gpus().size() < 2) GTEST_SKIP() << kOneGpu;
  expect_trains_as_on_cpu(gpus());
}

TEST(LibTorchDataParallel, ReplicasAreOnTheCallersStreams) {
  if (gpus().empty()) GTEST_SKIP() << kNoCuda;
  const c10::impl::VirtualGuardImpl cuda(at::kCUDA);
  const c10::StreamGuard guard(cuda.getStreamFromGlobalPool({at::kCUDA, 0}));
  expect_trains_as_on_cpu({"cuda:0", "cuda:0"});
}

// The gradients are lockstep's on its stream, and LibTorch's on another.
void expect_losses_of_one(const ProcessGroup& group) {
  testing::expect_near_losses(testing::torch_losses_of(group), testing::torch_losses_of_one());
}

ProcessGroup one_rank() {
  if (!distributed::is_initialized()) nccl::init_process_group("cuda:0");
  return distributed::default_group();
}

TEST(LibTorchDistributed, OneRankOfNcclTrainsAsOneProcess) {
  if (gpus().empty()) GTEST_SKIP() << kNoCuda;
  expect_losses_of_one(one_rank());
}

TEST(LibTorchDistributed, OnStreamsOfLibTorchs) {
  if (gpus().empty()) GTEST_SKIP() << kNoCuda;
  const c10::impl::VirtualGuardImpl cuda(at::kCUDA);
  const c10::StreamGuard guard(cuda.getStreamFromGlobalPool({at::kCUDA, 0}));
  expect_losses_of_one(one_rank());
}

// What is written to LibTorch's stream late is there when lockstep reads it, and the other way.
TEST(LibTorchDistributed, WaitsForWorkOfTheOtherLibrary) {
  if (gpus().empty()) GTEST_SKIP() << kNoCuda;
  const ProcessGroup group = one_rank();
  const auto net = std::make_shared<testing::TorchL0>();
  DistributedDataParallel model{net, group};
  model.register_comm_hook([](const GradBucket& bucket) {
    const Tensor large = zeros({1 << 26}, {.device = bucket.buffer().device()});
    for (int i = 0; i < 10; ++i) large.fill_(i);
    return BucketFuture(bucket.buffer().mul_(2));
  });
  const torch::Tensor large = torch::zeros({1 << 26}, at::device(at::kCUDA));
  for (int pass = 0; pass < 3; ++pass) {
    net->zero_grad();
    torch::Tensor x = torch::zeros({1, 2}, large.options().dtype(torch::kFloat64));
    for (int i = 0; i < 10; ++i) large.fill_(i);
    x.fill_(3);
    model(x).sum().backward();
    EXPECT_EQ((net->weight.grad() - 6).abs().max().item<double>(), 0) << pass;
  }
}

TEST(LibTorchDistributed, RanksThatAreThreadsTrainAsOneProcess) {
  if (gpus().size() < 2) GTEST_SKIP() << kOneGpu;
  distributed::run(std::vector<Device>{"cuda:0", "cuda:1"}, &expect_losses_of_one);
}

}  // namespace gpu_libtorch
}  // namespace lockstep
