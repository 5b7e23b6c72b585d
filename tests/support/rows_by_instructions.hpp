// SPDX-License-Identifier: Apache-2.0
//
// What tests of operations on rows, by each set of instructions, have in common.
#pragma once

#include <lockstep/ops/kernels/vector_math.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::testing {

// Whole vectors of each width and more, and none.
inline constexpr std::array<std::size_t, 7> kRowLengths{16, 17, 31, 64, 100, 257, 1500};

// All that this machine has, but for none at all.
inline std::vector<lockstep::detail::vectorized::Instructions> vector_instructions() {
  using lockstep::detail::vectorized::Instructions;
  std::vector<Instructions> all;
  const auto best = static_cast<int>(lockstep::detail::vectorized::best_instructions());
  for (int i = 1; i <= best; ++i) all.push_back(static_cast<Instructions>(i));
  return all;
}

inline std::string where_of_rows(std::size_t count, lockstep::detail::vectorized::Instructions by) {
  return "rows of " + std::to_string(count) + " by instructions " +
         std::to_string(static_cast<int>(by));
}

// So many numbers between −most and most.
inline std::vector<float> numbers(std::size_t count, float most, std::uint32_t state) {
  std::vector<float> all(count);
  for (float& each : all) {
    state = state * 1664525U + 1013904223U;
    each = (static_cast<float>(state >> 8) * 0x1p-23F - 1) * most;
  }
  return all;
}

}  // namespace lockstep::testing
