// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/element.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/fill.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>
#include <numeric>

namespace lockstep {

LOCKSTEP_INLINE Tensor full(const Shape& shape, Scalar value, const TensorOptions& options) {
  Tensor result = empty(shape, options);
  detail::fill(result, value, "full");
  return result;
}

LOCKSTEP_INLINE Tensor arange(std::int64_t count, const TensorOptions& options) {
  check<ValueError>(count >= 0, "arange: expected a count of at least 0, got ", count);
  dispatch_all(options.dtype, [&]<class T>(T) {
    if (count > 0) detail::check_fits<T>("arange", count - 1);
  });
  const Tensor values = empty({count}, Dtype::i64);
  auto* const first = values.mutable_data_ptr<std::int64_t>();
  std::iota(first, first + count, std::int64_t{0});
  return detail::copy_as(values, options);
}

}  // namespace lockstep
