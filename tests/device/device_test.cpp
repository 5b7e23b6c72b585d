// SPDX-License-Identifier: Apache-2.0
#include <lockstep/device/device.hpp>

#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <unordered_set>

namespace lockstep {
namespace device_test {

TEST(Device, ParsesWhatItPrints) {
  for (const char* text : {"cpu", "cpu:0", "cpu:17", "cuda:0", "cuda:3"}) {
    EXPECT_EQ(Device(text).str(), text);
    std::ostringstream out;
    out << Device(std::string(text));
    EXPECT_EQ(out.str(), text);
  }
  EXPECT_EQ(Device("cuda"), Device(DeviceType::cuda, 0));
  EXPECT_EQ(Device(std::string_view("cpu:1")), Device(DeviceType::cpu, 1));
  EXPECT_EQ(Device(), Device("cpu"));
}

TEST(Device, PlainCpuIsHostMemoryAndNoHostDevice) {
  EXPECT_TRUE(Device("cpu").is_host_memory());
  EXPECT_TRUE(Device("cpu").is_cpu());
  EXPECT_FALSE(Device("cpu:0").is_host_memory());
  EXPECT_TRUE(Device("cpu:0").is_cpu());
  EXPECT_TRUE(Device("cuda:0").is_cuda());
  EXPECT_FALSE(Device("cuda:0").is_host_memory());
  EXPECT_NE(Device("cpu"), Device("cpu:0"));
}

TEST(Device, AnythingElseIsAnErrorThatQuotesIt) {
  for (const char* text : {"", "gpu", "cpu:", "cpu:x", "cpu:1x", "cpu:-1", "cpu:+1", "cpu: 1",
                           "cpu:0:0", "CUDA", "cuda:", "cuda:99999999999", " cpu", "cpu "}) {
    try {
      (void)Device(text);
      ADD_FAILURE() << text << " was taken";
    } catch (const DeviceError& error) {
      EXPECT_EQ(std::string(error.what()), "unknown device string \"" + std::string(text) +
                                               "\": expected cpu, cpu:<index>, cuda or"
                                               " cuda:<index>");
    }
  }
}

TEST(Device, OrdersAndHashes) {
  const std::map<Device, int> ordered = {{"cuda:0", 3}, {"cpu:1", 2}, {"cpu", 0}, {"cpu:0", 1}};
  int expected = 0;
  for (const auto& [device, place] : ordered) EXPECT_EQ(place, expected++) << device;
  const std::unordered_set<Device> set = {"cpu", "cpu:0", "cuda:0", "cpu"};
  EXPECT_EQ(set.size(), 3U);
}

}  // namespace device_test
}  // namespace lockstep
