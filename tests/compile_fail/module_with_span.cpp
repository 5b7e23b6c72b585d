// expect: a std::span of such, does not own it.*hold it by value
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/module/module.hpp>

#include <span>

struct Scale {
  lockstep::Parameter weight;
  lockstep::Tensor forward(const lockstep::Tensor& x) { return x; }
};

struct Links {
#ifdef LOCKSTEP_CONTROL
  std::span<const double> scales;
#else
  std::span<Scale> scales;
#endif
};

struct Net {
  Links links;
  lockstep::Tensor forward(const lockstep::Tensor& x) { return x; }
};

int main() { return static_cast<int>(lockstep::parameters(Net{}).size()); }
