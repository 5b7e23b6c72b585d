// expect: a raw pointer or std::reference_wrapper to a module or.*hold it by value
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/module/module.hpp>

#include <functional>
#include <string>
#include <vector>

struct Scale {
  lockstep::Parameter weight;
  lockstep::Tensor forward(const lockstep::Tensor& x) { return x; }
};

struct Links {
#ifdef LOCKSTEP_CONTROL
  std::vector<std::reference_wrapper<const std::string>> names;
#else
  std::vector<std::reference_wrapper<Scale>> scales;
#endif
};

struct Net {
  Links links;
  lockstep::Tensor forward(const lockstep::Tensor& x) { return x; }
};

int main() { return static_cast<int>(lockstep::parameters(Net{}).size()); }
