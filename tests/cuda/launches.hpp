// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cudasim/cudasim.hpp>

#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::testing {

// The template of the kernel that a call launches, without namespaces and arguments.
inline std::string kernel_of(const cudasim::Call& call) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(call.name.c_str(), nullptr, nullptr, &status), &std::free);
  std::string name = text ? text.get() : call.name;
  name = name.substr(0, name.find('<'));
  const auto colon = name.rfind(':');
  return colon == std::string::npos ? name : name.substr(colon + 1);
}

// The kernels that `body` launches, in order.
template <class Body>
std::vector<std::string> launched(const Body& body) {
  cudasim::record_calls(true);
  body();
  std::vector<std::string> names;
  for (const cudasim::Call& call : cudasim::take_calls()) {
    if (call.function == "cudaLaunchKernel") names.push_back(kernel_of(call));
  }
  cudasim::record_calls(false);
  return names;
}

}  // namespace lockstep::testing
