// SPDX-License-Identifier: Apache-2.0
#include <lockstep/ops/to.hpp>
#include <lockstep/parallel/comm.hpp>
#include <lockstep/tensor/creation.hpp>

#include <cstdint>
#include <vector>

namespace ls = lockstep;

// Scatters and gathers so much that background threads copy it; 0 if nothing is lost.
extern "C" __attribute__((visibility("default"))) int use_threads() {
  std::vector<std::int64_t> values(std::size_t{1} << 19);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int64_t>(i);
  const ls::Tensor whole = ls::from_values(values, {4, 1 << 17});
  const std::vector<ls::Tensor> parts =
      ls::comm::scatter(whole.to("cpu:0"), {"cpu:0", "cpu:1", "cpu:2"});
  return ls::comm::gather(parts, 0, "cpu").to_vector<std::int64_t>() == values ? 0 : 1;
}
