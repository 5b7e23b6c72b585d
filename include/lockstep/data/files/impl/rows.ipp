// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/variable.hpp>
#include <lockstep/data/files/rows.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace lockstep::data::detail {

inline void check_row(std::int64_t row, std::int64_t rows) {
  check<IndexError>(row >= 0 && row < rows, "sample ", row, " is out of range: there are ", rows);
}

LOCKSTEP_INLINE Tensor row_of(const Tensor& tensor, std::int64_t row) {
  check_row(row, tensor.size(0));
  Shape shape = tensor.sizes();
  Shape strides = tensor.strides();
  shape.erase(0);
  strides.erase(0);
  return lockstep::detail::make_view(tensor, shape, strides,
                                     tensor.impl()->offset + row * tensor.strides()[0]);
}

LOCKSTEP_INLINE Tensor select_rows(const Tensor& tensor, std::span<const std::int64_t> rows) {
  for (const std::int64_t row : rows) check_row(row, tensor.size(0));
  Shape shape = tensor.sizes();
  shape[0] = static_cast<std::int64_t>(rows.size());
  Tensor result = empty(shape, {.dtype = tensor.dtype(), .device = tensor.device()});
  if (result.numel() == 0) return result;
  if (!tensor.device().is_host_memory() || !tensor.is_contiguous()) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      lockstep::detail::copy_into(row_of(result, static_cast<std::int64_t>(i)),
                                  row_of(tensor, rows[i]));
    }
    return result;
  }
  const Dtype dtype = tensor.dtype();
  const auto* const from =
      static_cast<const std::byte*>(lockstep::detail::read_on_host(tensor, dtype));
  auto* const to = static_cast<std::byte*>(lockstep::detail::write_on_host(result, dtype));
  const std::size_t width =
      static_cast<std::size_t>(result.numel()) / rows.size() * element_size(dtype);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::memcpy(to + i * width, from + static_cast<std::size_t>(rows[i]) * width, width);
  }
  return result;
}

}  // namespace lockstep::data::detail
