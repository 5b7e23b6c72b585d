// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/streams.hpp>
#include <lockstep/cuda/cuda_backend.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/parallel/comm/gather.hpp>
#include <lockstep/parallel/comm/scatter.hpp>
#include <lockstep/tensor/creation.hpp>

#include <cudasim/cudasim.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

// Scatter's order of work, call by call as the CUDA runtime sees it: each chunk is copied on its
// device's copy stream, the compute stream waits for that, and the chunk's memory goes back only
// after what the compute stream does with it.
namespace lockstep {
namespace scatter_order_test {

using Lines = std::vector<std::string>;

std::vector<Device> gpus(std::size_t count) {
  std::vector<Device> devices;
  for (std::size_t i = 0; i < count; ++i) {
    devices.emplace_back(DeviceType::cuda, static_cast<int>(i));
  }
  return devices;
}

cudaStream_t handle(const Stream& stream) {
  return static_cast<cuda::CudaStream&>(stream.state()).handle();
}

// The calls that issue work or order, as "copy 0: cudaMemcpyAsync". An event has the name of the
// stream that it was recorded on.
class Recorder {
 public:
  explicit Recorder(const std::vector<Device>& devices) {
    for (const Device& device : devices) {
      const std::string index = std::to_string(device.index);
      names_[cudasim::stream_number(handle(default_stream(device)))] = "compute " + index;
      names_[cudasim::stream_number(handle(copy_stream(device)))] = "copy " + index;
    }
    // What is found out once has been found out.
    for (const Device& device : devices) (void)detail::can_access(devices[0], device);
    for (const Device& device : devices) (void)detail::can_access(device, devices[0]);
    for (const Device& device : devices) synchronize(device);
    cudasim::set_policy(cudasim::Policy::lazy);  // so that nothing is idle once work was issued
    cudasim::record_calls(true);
  }
  ~Recorder() { cudasim::record_calls(false); }

  Lines take() {
    Lines lines;
    for (const cudasim::Call& call : cudasim::take_calls()) {
      if (call.function == "cudaEventRecord") {
        recorded_[call.event] = names_[call.stream];
      } else if (call.function == "cudaStreamWaitEvent") {
        lines.push_back(names_[call.stream] + ": waits for " + recorded_[call.event]);
      } else if (issues_.count(call.function) != 0) {
        lines.push_back(names_[call.stream] + ": " + issues_.at(call.function));
      }
    }
    return lines;
  }

 private:
  const std::map<std::string, std::string> issues_ = {{"cudaMallocFromPoolAsync", "allocate"},
                                                      {"cudaMemcpyAsync", "copy"},
                                                      {"cudaMemcpy2DAsync", "copy"},
                                                      {"cudaLaunchKernel", "kernel"},
                                                      {"cudaFreeAsync", "free"}};
  std::map<int, std::string> names_;
  std::map<int, std::string> recorded_;
};

class ScatterCalls : public ::testing::TestWithParam<std::size_t> {};

TEST_P(ScatterCalls, CopyThenWaitThenUseThenFree) {
  const std::vector<Device> devices = gpus(GetParam());
  const Tensor batch = ones({static_cast<std::int64_t>(8 * devices.size()), 3});
  Recorder recorder(devices);

  std::vector<Tensor> chunks = comm::scatter(batch, devices);
  Lines expected;
  for (const Device& device : devices) {
    const std::string i = std::to_string(device.index);
    expected.push_back("copy " + i + ": allocate");
    expected.push_back("copy " + i + ": copy");
  }
  for (const Device& device : devices) {
    const std::string i = std::to_string(device.index);
    expected.push_back("compute " + i + ": waits for copy " + i);
  }
  EXPECT_EQ(recorder.take(), expected);

  for (const Tensor& chunk : chunks)
    (void)detail::map<float, float>(chunk, detail::BindRight<float, detail::Plus<float>>{{}, 1});
  (void)recorder.take();
  chunks.clear();
  expected.clear();
  for (const Device& device : devices) {
    const std::string i = std::to_string(device.index);
    expected.push_back("copy " + i + ": waits for compute " + i);
    expected.push_back("copy " + i + ": free");
  }
  EXPECT_EQ(recorder.take(), expected);
}

TEST_P(ScatterCalls, GatherIsTheMirror) {
  const std::vector<Device> devices = gpus(GetParam());
  std::vector<Tensor> parts;
  for (const Device& device : devices) parts.push_back(ones({4, 3}, {.device = device}));
  Recorder recorder(devices);
  for (const Tensor& part : parts) part.zero_();
  (void)recorder.take();
  Tensor whole = comm::gather(parts, 0, devices[0]);
  Lines expected = {"copy 0: allocate"};
  for (const Device& device : devices) {
    const std::string i = std::to_string(device.index);
    expected.push_back("copy 0: waits for compute " + i);
    expected.push_back("copy 0: copy");
  }
  expected.push_back("compute 0: waits for copy 0");
  EXPECT_EQ(recorder.take(), expected);

  // The sources are still being read: their memory goes back after the copy.
  parts.clear();
  expected.clear();
  for (const Device& device : devices) {
    const std::string i = std::to_string(device.index);
    expected.push_back("compute " + i + ": waits for copy 0");
    expected.push_back("compute " + i + ": free");
  }
  EXPECT_EQ(recorder.take(), expected);
}

INSTANTIATE_TEST_SUITE_P(Devices, ScatterCalls, ::testing::Values(1, 2, 4));

}  // namespace scatter_order_test
}  // namespace lockstep
