// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/shape.hpp>

#include <cstddef>

namespace lockstep::detail {

// A shape seen along one dimension: [outer, count, inner].
struct Axis {
  std::size_t outer = 1;
  std::size_t count = 1;
  std::size_t inner = 1;

  Axis(const Shape& shape, std::size_t dim) : count(static_cast<std::size_t>(shape[dim])) {
    for (std::size_t d = 0; d < shape.size(); ++d) {
      if (d < dim) outer *= static_cast<std::size_t>(shape[d]);
      if (d > dim) inner *= static_cast<std::size_t>(shape[d]);
    }
  }
};

}  // namespace lockstep::detail
