// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <concepts>
#include <cstdint>
#include <ostream>

namespace lockstep {

// A height and a width: of a kernel, a stride, a padding, a dilation. One number stands for both.
//
// **Torch counterpart.** torch::ExpandingArray<2>.
// **Example.** `conv2d(x, weight, bias, 2, {1, 0})`
struct Size2d {
  std::int64_t height;
  std::int64_t width;

  template <std::integral Int>
  constexpr Size2d(Int both)
      : height(static_cast<std::int64_t>(both)), width(static_cast<std::int64_t>(both)) {}
  constexpr Size2d(std::int64_t height_, std::int64_t width_) : height(height_), width(width_) {}

  friend constexpr bool operator==(const Size2d&, const Size2d&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Size2d& size) {
    return out << '[' << size.height << ", " << size.width << ']';
  }
};

}  // namespace lockstep
