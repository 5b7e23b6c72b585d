// SPDX-License-Identifier: Apache-2.0
#include "cudasim/cudasim.hpp"

#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>

namespace cudasim {
namespace {

int number_in(const std::string& variable, const std::string& text) {
  std::size_t used = 0;
  int number = -1;
  try {
    number = std::stoi(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  if (used == 0 || used != text.size() || number < 0) {
    throw std::invalid_argument(variable + ": a number was expected, not '" + text + "'");
  }
  return number;
}

int number_from(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : number_in(variable, text);
}

void read_policy(const std::string& text, Config& config) {
  static const std::map<std::string, Policy> policies{
      {"eager", Policy::eager},   {"lazy", Policy::lazy},     {"starve", Policy::starve},
      {"favour", Policy::favour}, {"random", Policy::random},
  };
  const std::size_t colon = text.find(':');
  const auto found = policies.find(text.substr(0, colon));
  const bool picks = found != policies.end() &&
                     (found->second == Policy::starve || found->second == Policy::favour);
  if (found == policies.end() || picks != (colon != std::string::npos)) {
    throw std::invalid_argument("CUDASIM_POLICY: '" + text +
                                "' is not eager, lazy, starve:N, favour:N or random");
  }
  config.policy = found->second;
  if (picks) config.pick = number_in("CUDASIM_POLICY", text.substr(colon + 1));
}

}  // namespace

Config config_from_environment() {
  Config config;
  config.devices = number_from("CUDASIM_DEVICES", config.devices);
  config.seed = static_cast<unsigned>(number_from("CUDASIM_SEED", static_cast<int>(config.seed)));
  config.late_polls = number_from("CUDASIM_LATE_POLLS", config.late_polls);
  config.exact_runs = number_from("CUDASIM_EXACT_RUNS", config.exact_runs);
  config.traps = number_from("CUDASIM_TRAPS", 1) != 0;
  config.print = number_from("CUDASIM_PRINT", 0) != 0;
  if (const char* policy = std::getenv("CUDASIM_POLICY")) read_policy(policy, config);
  return config;
}

}  // namespace cudasim
