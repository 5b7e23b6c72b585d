// SPDX-License-Identifier: Apache-2.0
#include <lockstep/device/device.hpp>
#include <lockstep/device/devices.hpp>
#include <lockstep/distributed/environment.hpp>
#include <lockstep/distributed/watchdog/watchdog_options.hpp>
#include <lockstep/error.hpp>

#include "fuzz.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <string>
#include <string_view>

// Names of devices, and variables of the environment that a launcher or a user sets.
namespace {

using lockstep::fuzz::Choice;
using lockstep::fuzz::give_up;

void read_device(const std::string& text) {
  const lockstep::Device device(text);
  const std::string written = lockstep::detail::str(device);
  if (lockstep::Device(written) != device) give_up("a device's name leads to another one");
}

// Sets the variables to the lines of the text, one after the other, while it lives.
class Environment {
 public:
  explicit Environment(std::string_view text) {
    std::size_t number = 0;
    for (const char* variable : kVariables) {
      const std::size_t end = text.find('\n');
      const std::string_view line = text.substr(0, end);
      std::string& entry = entries_[number++];
      entry = std::string(variable) + "=";
      if (!line.empty() && line.find('\0') == std::string_view::npos) {
        entry += line;
        putenv(entry.data());  // setenv would keep every value for ever
      }
      text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    }
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment() {
    for (const char* variable : kVariables) unsetenv(variable);
  }

 private:
  static constexpr const char* kVariables[] = {"RANK",
                                               "WORLD_SIZE",
                                               "LOCAL_RANK",
                                               "MASTER_PORT",
                                               "LOCKSTEP_HEARTBEAT_INTERVAL",
                                               "LOCKSTEP_HEARTBEAT_TIMEOUT",
                                               "LOCKSTEP_COLLECTIVE_TIMEOUT",
                                               "MASTER_ADDR",
                                               "PMI_RANK",
                                               "PMI_SIZE"};

  std::array<std::string, std::size(kVariables)> entries_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const Choice chosen(bytes, size);
  try {
    if (chosen.number % 2 == 0) {
      read_device(std::string(chosen.rest));
      return 0;
    }
  } catch (const lockstep::Error&) {
    return 0;
  }
  const Environment environment(chosen.rest);
  try {
    const auto launched = lockstep::distributed::launch_environment();
    if (launched.rank < 0 || launched.rank >= launched.world_size) give_up("an impossible rank");
  } catch (const lockstep::ValueError&) {
  }
  try {
    const auto options = lockstep::distributed::WatchdogOptions::from_environment();
    if (options.interval.count() <= 0) give_up("an impossible interval");
  } catch (const lockstep::ValueError&) {
  }
  return 0;
}
