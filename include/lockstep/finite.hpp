// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <cstdint>

// What a number is, by its bits. A program may be compiled with -ffast-math: then every number
// passes for finite, std::isfinite holds of each, and a comparison with NaN says anything.
namespace lockstep::detail {

// In the order of the magnitudes, infinity behind all numbers, and NaN behind infinity.
constexpr std::uint64_t magnitude_bits(double number) {
  return __builtin_bit_cast(std::uint64_t, number) & ~(std::uint64_t{1} << 63);
}
inline constexpr std::uint64_t kInfinityBits = std::uint64_t{0x7ff} << 52;

constexpr bool is_finite(double number) { return magnitude_bits(number) < kInfinityBits; }
constexpr bool is_nan(double number) { return magnitude_bits(number) > kInfinityBits; }

}  // namespace lockstep::detail
