// expect: another library's module, which goes to replicate and
// SPDX-License-Identifier: Apache-2.0
#include <lockstep/parallel/data_parallel.hpp>

#include <memory>
#include <optional>

struct Net {
  lockstep::Parameter weight;
  lockstep::Tensor forward(const lockstep::Tensor& x) { return x; }
};

#ifndef LOCKSTEP_CONTROL
template <>
struct lockstep::module_traits<Net> {
  static std::optional<Device> device(const Net&) { return {}; }
};
#endif

int main() { lockstep::DataParallel model{Net(), {"cpu:0", "cpu:1"}}; }
