// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/streams.hpp>
#include <lockstep/cuda/runtime/cuda_stream.hpp>
#include <lockstep/device/device.hpp>

#include <cudasim/cudasim.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

// The order of work as the CUDA runtime sees it, call by call.
namespace lockstep::testing {

using Lines = std::vector<std::string>;

inline std::vector<Device> gpus(std::size_t count) {
  std::vector<Device> devices;
  for (std::size_t i = 0; i < count; ++i) {
    devices.emplace_back(DeviceType::cuda, static_cast<int>(i));
  }
  return devices;
}

inline cudaStream_t handle(const Stream& stream) {
  return static_cast<cuda::CudaStream&>(stream.state()).bare_handle();
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

// Lines of each device in turn, whose index stands for #.
inline Lines for_each_device(const std::vector<Device>& devices, const Lines& pattern) {
  Lines lines;
  for (const Device& device : devices) {
    for (std::string line : pattern) {
      for (auto at = line.find('#'); at != std::string::npos; at = line.find('#')) {
        line.replace(at, 1, std::to_string(device.index));
      }
      lines.push_back(line);
    }
  }
  return lines;
}

inline Lines joined(Lines first, const Lines& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// What a stream need not wait for may have happened.
inline ::testing::AssertionResult are(const Lines& lines, const Lines& expected,
                                      bool may_have_happened) {
  auto line = lines.begin();
  for (const std::string& each : expected) {
    const bool there = line != lines.end() && *line == each;
    if (there) ++line;
    if (!there && !(may_have_happened && each.find("waits for") != std::string::npos)) {
      return ::testing::AssertionFailure()
             << "'" << each << "' is missing in " << ::testing::PrintToString(lines);
    }
  }
  if (line == lines.end()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << "'" << *line << "' is too much in " << ::testing::PrintToString(lines);
}

}  // namespace lockstep::testing
