// SPDX-License-Identifier: Apache-2.0
#include <lockstep/device/cores.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/devices.hpp>

#include "support/devices.hpp"
#include "support/environment_variable.hpp"
#include "support/expect_error.hpp"

#include <gtest/gtest.h>

#include <iostream>
#include <string>
#include <vector>

#include <unistd.h>

namespace lockstep {
namespace devices_test {

using testing::EnvironmentVariable;
using testing::first_devices;
using testing::throws;

TEST(Device, TakesOnlyPlainNumbersAsIndex) {
  for (const std::string text : {"cpu:-0", "cpu:0x1", "cpu:1.0", "cpu:1 ", "cpu::1",
                                 "cpu:2147483648", "cuda:-1", "cpu1", ":1", ":"}) {
    EXPECT_TRUE(throws<DeviceError>([&] { (void)Device(text); }, "\"" + text + "\""));
  }
  EXPECT_TRUE(throws<DeviceError>([] { (void)Device(std::string("cpu:1\0", 6)); }, "unknown"));
  EXPECT_EQ(Device("cpu:2147483647").index, 2147483647);
}

TEST(Devices, AreTheHostDevicesWhereThereIsNoGpu) {
  EXPECT_EQ(device_count(DeviceType::cuda), 0);
  EXPECT_EQ(no_cuda_reason(), "built without CUDA");
  const auto count = static_cast<std::size_t>(device_count(DeviceType::cpu));
  EXPECT_EQ(host_devices(), first_devices(count));
  EXPECT_EQ(devices(), host_devices());
  EXPECT_TRUE(devices(DeviceType::cuda).empty());
}

TEST(Devices, AreNamedByTheirIndexAlone) {
  EXPECT_EQ(Device(0), host_devices()[0]);
  const std::vector<Device> ids = {0, 1, 0};
  EXPECT_EQ(ids, (std::vector<Device>{"cpu:0", "cpu:1", "cpu:0"}));
  EXPECT_TRUE(
      throws<DeviceError>([] { (void)Device(-1); }, "device index -1: expected at least 0"));
}

TEST(Devices, AreCheckedForBeingThere) {
  const int count = device_count(DeviceType::cpu);
  EXPECT_NO_THROW(check_device("cpu"));
  for (const Device device : host_devices()) EXPECT_NO_THROW(check_device(device));
  EXPECT_TRUE(throws<DeviceError>([&] { check_device(Device(DeviceType::cpu, count)); },
                                  "cpu:" + std::to_string(count) + " is out of range",
                                  "there are " + std::to_string(count) + " host devices",
                                  "LOCKSTEP_HOST_DEVICES", "set_host_device_count"));
  EXPECT_TRUE(throws<DeviceError>([] { check_device(Device(DeviceType::cpu, -2)); },
                                  "cpu:-2 is out of range"));
  EXPECT_TRUE(throws<DeviceError>([] { check_device("cuda:0"); }, "device cuda:0", "no CUDA device",
                                  "built without CUDA"));
}

TEST(Devices, AreFixedOnceTheyAreInUse) {
  const int count = device_count(DeviceType::cpu);
  EXPECT_NO_THROW(set_host_device_count(count));
  EXPECT_TRUE(throws<DeviceError>([&] { set_host_device_count(count + 1); },
                                  "set_host_device_count(" + std::to_string(count + 1),
                                  "with " + std::to_string(count) + " host devices",
                                  "call it first"));
  EXPECT_EQ(device_count(DeviceType::cpu), count);
}

TEST(Devices, CannotBeNoneOrTooMany) {
  for (const int count : {0, -1, detail::kMaxHostDevices + 1}) {
    EXPECT_TRUE(throws<DeviceError>([&] { set_host_device_count(count); }, "expected 1 to 1024",
                                    "got " + std::to_string(count)));
  }
}

// The environment of this process, and of the children that the death tests below run in: each
// starts this program anew, so its devices are not in use yet.
struct HostDevicesVariable : EnvironmentVariable {
  explicit HostDevicesVariable(const char* value)
      : EnvironmentVariable("LOCKSTEP_HOST_DEVICES", value) {}
};

// Ends the process with status 0, and what `body` prints or throws on stderr.
template <class Body>
[[noreturn]] void report(Body body) {
  try {
    body();
  } catch (const Error& error) {
    std::cerr << "threw " << error.what();
  }
  std::cerr << std::endl;
  ::_exit(0);
}

class DevicesDeathTest : public ::testing::Test {
 protected:
  DevicesDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(DevicesDeathTest, NumberAsManyAsTheEnvironmentSays) {
  for (const char* count : {"1", "1024"}) {
    const HostDevicesVariable variable(count);
    EXPECT_EXIT(report([] { std::cerr << "count " << device_count(DeviceType::cpu) << '.'; }),
                ::testing::ExitedWithCode(0), std::string("^count ") + count + "\\.");
  }
}

TEST_F(DevicesDeathTest, RefuseAnEnvironmentThatIsNoCount) {
  for (const char* text : {" ", "0", "1025", "2x"}) {
    const HostDevicesVariable variable(text);
    EXPECT_EXIT(report([] { std::cerr << "count " << device_count(DeviceType::cpu); }),
                ::testing::ExitedWithCode(0),
                std::string("threw LOCKSTEP_HOST_DEVICES is \"") + text +
                    "\": expected a number from 1 to 1024");
  }
}

TEST_F(DevicesDeathTest, AnEmptyVariableIsAsGoodAsNone) {
  const HostDevicesVariable variable("");
  const EnvironmentVariable cuda("LOCKSTEP_CUDA_DEVICES", "");
  EXPECT_EXIT(report([] {
                const int count = device_count(DeviceType::cpu);
                const bool one_each = count == static_cast<int>(detail::usable_cores());
                std::cerr << "count " << count << (one_each ? ", one a core" : ", another");
              }),
              ::testing::ExitedWithCode(0), "^count [1-9][0-9]*, one a core");
}

TEST_F(DevicesDeathTest, ANumberOfGpusThatIsNoneIsRefusedWithoutCudaAsWell) {
  for (const char* text : {"zzz", "-1", "65"}) {
    const EnvironmentVariable variable("LOCKSTEP_CUDA_DEVICES", text);
    EXPECT_EXIT(report([] { (void)devices(); }), ::testing::ExitedWithCode(0),
                std::string("threw LOCKSTEP_CUDA_DEVICES is \"") + text +
                    "\": expected a number from 0 to 64");
  }
  for (const char* text : {"0", "64"}) {
    const EnvironmentVariable variable("LOCKSTEP_CUDA_DEVICES", text);
    EXPECT_EXIT(report([] { std::cerr << "first " << devices()[0] << '.'; }),
                ::testing::ExitedWithCode(0), "^first cpu:0\\.");
  }
}

TEST_F(DevicesDeathTest, NumberAsManyAsTheCallSaysWhateverTheEnvironment) {
  const HostDevicesVariable variable("3");
  EXPECT_EXIT(report([] {
                set_host_device_count(detail::kMaxHostDevices);
                set_host_device_count(1);
                std::cerr << "count " << host_devices().size() << '.';
              }),
              ::testing::ExitedWithCode(0), "^count 1\\.");
}

TEST_F(DevicesDeathTest, AnIndexAloneIsAGpuWhereThereIsOne) {
  EXPECT_EXIT(report([] {
                detail::cuda_device_counter = [](std::string*) { return 2; };
                std::cerr << Device(1) << '.';
              }),
              ::testing::ExitedWithCode(0), "^cuda:1\\.");
}

TEST_F(DevicesDeathTest, GiveTheDriversReasonWhereItFindsNoGpu) {
  EXPECT_EXIT(report([] {
                detail::cuda_device_counter = [](std::string* reason) {
                  *reason = "no driver";
                  return 0;
                };
                std::cerr << (devices() == host_devices() ? "the host's: " : "others: ")
                          << no_cuda_reason() << ". ";
                check_device("cuda:0");
              }),
              ::testing::ExitedWithCode(0),
              "^the host's: no driver\\. threw device cuda:0.*\\(no driver\\)");
}

// As a static initialiser may be, which runs before the one that registers the CUDA side.
TEST_F(DevicesDeathTest, WhoAsksTooEarlyIsToldOfNoGpuAndLaterOfThem) {
  EXPECT_EXIT(report([] {
                std::cerr << no_cuda_reason() << ". ";
                detail::cuda_device_counter = [](std::string*) { return 1; };
                std::cerr << '(' << no_cuda_reason() << ')';
              }),
              ::testing::ExitedWithCode(0), "^built without CUDA\\. \\(\\)");
}

TEST_F(DevicesDeathTest, AreTheGpusWhereThereAreSome) {
  EXPECT_EXIT(report([] {
                detail::cuda_device_counter = [](std::string*) { return 2; };
                for (const Device device : devices()) std::cerr << device << ' ';
                std::cerr << '(' << no_cuda_reason() << ") ";
                check_device("cuda:1");
                check_device("cuda:2");
              }),
              ::testing::ExitedWithCode(0),
              "^cuda:0 cuda:1 \\(\\) threw device cuda:2.*2 CUDA devices");
}

}  // namespace devices_test
}  // namespace lockstep
