// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <cstdint>

// Tests of a number by its bits. Under -ffast-math std::isfinite is true for every number, and
// comparisons with NaN are arbitrary.
namespace lockstep::detail {

// Bits that order numbers by magnitude, then infinity, then NaN.
constexpr std::uint64_t magnitude_bits(double number) {
  return __builtin_bit_cast(std::uint64_t, number) & ~(std::uint64_t{1} << 63);
}
inline constexpr std::uint64_t kInfinityBits = std::uint64_t{0x7ff} << 52;

constexpr bool is_finite(double number) { return magnitude_bits(number) < kInfinityBits; }
constexpr bool is_nan(double number) { return magnitude_bits(number) > kInfinityBits; }

}  // namespace lockstep::detail
