// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/ops/reduction.hpp>
#include <lockstep/parallel/scatter_gather.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::detail::nested {

LOCKSTEP_INLINE std::vector<double> row_weights(std::span<const std::int64_t> rows,
                                                std::size_t parts) {
  std::int64_t total = 0;
  for (const std::int64_t n : rows) total += n;
  if (total == 0) return std::vector<double>(parts, 1 / static_cast<double>(parts));
  std::vector<double> weights;
  for (const std::int64_t n : rows) {
    weights.push_back(static_cast<double>(n) / static_cast<double>(total));
  }
  return weights;
}

}  // namespace lockstep::detail::nested
