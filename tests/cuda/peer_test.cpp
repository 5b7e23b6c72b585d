// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/streams.hpp>
#include <lockstep/cuda/cuda_backend.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/nn/linear.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/parallel/comm/broadcast.hpp>
#include <lockstep/parallel/comm/gather.hpp>
#include <lockstep/parallel/comm/reduce_add.hpp>
#include <lockstep/parallel/comm/scatter.hpp>
#include <lockstep/parallel/data_parallel.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/warning.hpp>

#include <cudasim/cudasim.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

// Machines of other kinds: GPUs that cannot reach each other, that say they can and deliver
// something else, several devices on one GPU, and no driver. Each test is a process of its own,
// since a process decides once what its machine is.
namespace lockstep {
namespace peer_test {

using Values = std::vector<float>;

Tensor counting(std::int64_t count, const Shape& shape) {
  Values values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(i % 1021));
  return from_values(values, shape, Device());
}

Values values_of(const Tensor& tensor) {
  const Tensor host = empty(tensor.sizes(), {.dtype = tensor.dtype()});
  detail::copy_into(host, tensor);
  const auto* first = host.const_data_ptr<float>();
  return Values(first, first + host.numel());
}

int failures = 0;

void expect(bool holds, const char* what) {
  if (holds) return;
  std::cerr << "FAILED: " << what << '\n';
  ++failures;
}

[[noreturn]] void leave() {
  for (const std::string& error : cudasim::take_errors()) {
    std::cerr << error << '\n';
    ++failures;
  }
  std::cerr << "done\n";
  std::_Exit(failures);
}

// Every way that bytes go between GPUs.
void use_several_gpus() {
  const std::vector<Device> gpus = {"cuda:0", "cuda:1", "cuda:2"};
  for (const std::int64_t rows : {3, 400, 70000}) {
    const Tensor host = counting(rows * 24, {rows, 24});
    const Tensor first = host.to(gpus[0]);
    expect(values_of(first.to(gpus[1])) == values_of(host), "a copy between two GPUs");
    const std::vector<Tensor> chunks = comm::scatter(first, gpus, {}, 1);
    expect(values_of(comm::gather(chunks, 1, gpus[2])) == values_of(host), "columns");
    const std::vector<Tensor> copies = comm::broadcast(first, gpus);
    const Values sum = values_of(comm::reduce_add(copies, gpus[1]));
    expect(sum[5] == 3 * values_of(host)[5], "a sum over GPUs");
  }
  DataParallel model{nn::Linear{24, 2}, gpus};
  const Tensor x = counting(9 * 24, {9, 24});
  model(x).sum().backward();
  Values summed(24);
  const Values rows = values_of(x);
  for (std::size_t i = 0; i < rows.size(); ++i) summed[i % 24] += rows[i];
  expect(values_of(model.module().weight.grad().narrow(0, 0, 1)) == summed, "gradients");
}

void on_machine(const cudasim::Config& config) {
  ::setenv("CUDASIM_LATE_POLLS", "8", 1);
  cudasim::reset(config);
}

TEST(PeerDeathTest, WithoutPeerAccessCopiesGoThroughTheHost) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        on_machine({.devices = 3, .policy = cudasim::Policy::random, .peer_access = false});
        use_several_gpus();
        leave();
      },
      ::testing::ExitedWithCode(0), "done");
}

// The block between them is in use by the GPU that is read until that has ended.
TEST(PeerDeathTest, ACopyThatFailsBetweenItsTwoHalvesLeavesItsBlockInUse) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        on_machine({.devices = 2, .policy = cudasim::Policy::lazy, .peer_access = false});
        const Tensor ones_there = ones({24}, {.device = "cuda:0"});
        const Tensor copy = empty({24}, {.device = "cuda:1"});
        const Tensor host = counting(24, {24});
        for (const char* gpu : {"cuda:0", "cuda:1"}) synchronize(Device(gpu));
        cudasim::fail_next("cudaEventRecord", cudaErrorMemoryAllocation);
        bool thrown = false;
        try {
          detail::copy_into(copy, ones_there);
        } catch (const CudaError&) {
          thrown = true;
        }
        expect(thrown, "an error");
        expect(cuda::CudaDevice::at("cuda:0").bridge.idle(), "an end");
        std::vector<Tensor> next;
        for (int i = 0; i < 20; ++i) next.push_back(host.to("cuda:1"));
        synchronize("cuda:0");
        for (const Tensor& each : next) expect(values_of(each) == values_of(host), "a later copy");
        leave();
      },
      ::testing::ExitedWithCode(0), "done");
}

TEST(PeerDeathTest, CopiesThatDoNotArriveAreFoundOutAndGoThroughTheHost) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        on_machine({.devices = 3, .policy = cudasim::Policy::lazy, .peer_data = false});
        use_several_gpus();
        leave();
      },
      ::testing::ExitedWithCode(0), "do not arrive as they were sent(.|\n)*done");
}

TEST(PeerDeathTest, SeveralDevicesOnOneGpuHaveStreamsOfTheirOwn) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        ::setenv("LOCKSTEP_CUDA_DEVICES", "3", 1);
        on_machine({.devices = 1, .policy = cudasim::Policy::random});
        expect(device_count(DeviceType::cuda) == 3, "three devices");
        expect(default_stream("cuda:0") != default_stream("cuda:2"), "streams of their own");
        use_several_gpus();
        leave();
      },
      ::testing::ExitedWithCode(0), "done");
}

TEST(PeerDeathTest, WithoutADriverHostDevicesAreUsedAndTheReasonIsTold) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        on_machine({.driver = false});
        expect(device_count(DeviceType::cuda) == 0, "no device");
        expect(devices() == host_devices(), "host devices");
        expect(no_cuda_reason().find("driver") != std::string::npos, "the reason");
        std::string message;
        try {
          (void)ones({1}, {.device = "cuda:0"});
        } catch (const DeviceError& error) {
          message = error.what();
        }
        expect(message.find("this machine has no CUDA device") != std::string::npos, "an error");
        leave();
      },
      ::testing::ExitedWithCode(0), "done");
}

}  // namespace peer_test
}  // namespace lockstep
