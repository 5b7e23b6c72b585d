// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/element.hpp>
#include <lockstep/tensor/fill.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>
#include <vector>

namespace lockstep {

LOCKSTEP_INLINE Tensor full(const Shape& shape, Scalar value, const TensorOptions& options) {
  Tensor result = empty(shape, options);
  detail::fill(result, value, "full");
  return result;
}

LOCKSTEP_INLINE Tensor arange(std::int64_t count, const TensorOptions& options) {
  check<ValueError>(count >= 0, "arange: expected a count of at least 0, got ", count);
  dispatch_all(options.dtype, [&]<class T>(T) {
    if (count > 0) detail::check_reached<T>("arange", count - 1);
  });
  std::vector<std::int64_t> values(static_cast<std::size_t>(numel({count})));
  for (std::int64_t i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = i;
  return detail::copy_as(from_values(values, {count}), options);
}

}  // namespace lockstep
