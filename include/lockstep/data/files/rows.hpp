// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

// Rows of tensors as samples. Nothing here is recorded for backward.
namespace lockstep::data::detail {

// tensor[row], a view.
Tensor row_of(const Tensor& tensor, std::int64_t row);

// The given rows, in that order, as a new tensor on the same device.
Tensor select_rows(const Tensor& tensor, std::span<const std::int64_t> rows);

// Stacks tensors, at least one, of one shape, dtype and device as the rows of a new one; undefined
// if all are undefined. Errors name it by `where`.
template <class Where>
Tensor stack_rows(std::span<const Tensor> tensors, const Where& where) {
  const Tensor& first = tensors[0];
  for (std::size_t i = 1; i < tensors.size(); ++i) {
    const Tensor& other = tensors[i];
    check<ValueError>(other.defined() == first.defined(), "collate: ", where,
                      " is a tensor in one of sample 0 of the batch and sample ", i,
                      ", and undefined in the other");
    if (!first.defined()) continue;
    check<ShapeError>(other.sizes() == first.sizes(), "collate: ", where,
                      ": sample 0 of the batch has shape ", first.sizes(), ", but sample ", i,
                      " has ", other.sizes());
    check<DtypeError>(other.dtype() == first.dtype(), "collate: ", where,
                      ": sample 0 of the batch is of ", first.dtype(), ", but sample ", i, " of ",
                      other.dtype());
    check<DeviceError>(other.device() == first.device(), "collate: ", where,
                       ": sample 0 of the batch is on ", first.device(), ", but sample ", i, " on ",
                       other.device());
  }
  if (!first.defined()) return {};
  Shape shape = first.sizes();
  shape.insert(0, static_cast<std::int64_t>(tensors.size()));
  Tensor result = empty(shape, {.dtype = first.dtype(), .device = first.device()});
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    lockstep::detail::copy_into(row_of(result, static_cast<std::int64_t>(i)), tensors[i]);
  }
  return result;
}

}  // namespace lockstep::data::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/data/files/impl/rows.ipp>
#endif
