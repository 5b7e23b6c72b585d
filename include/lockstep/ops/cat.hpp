// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

// Joining tensors of one device.
namespace lockstep {

// Joins tensors along a dimension. They are on one device and of one dtype, and their other sizes
// are equal. `gather` joins tensors of several devices.
//
// **Torch counterpart.** torch.cat; empty tensors are not skipped, and dtypes are promoted only
// under autocast, to f32.
// **Threads and exceptions.** A ValueError for an empty list or an undefined tensor; a ShapeError,
// DtypeError or DeviceError names the tensors that do not match.
Tensor cat(const std::vector<Tensor>& tensors, std::int64_t dim = 0);

namespace detail {

// `cat` of tensors that are known to match.
Tensor cat_at(const std::vector<Tensor>& tensors, std::size_t dim);

}  // namespace detail

// Joins tensors of one shape along a new dimension, which comes before dimension `dim`.
//
// **Torch counterpart.** torch.stack.
// **Threads and exceptions.** As cat.
Tensor stack(const std::vector<Tensor>& tensors, std::int64_t dim = 0);

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/cat.ipp>
#endif
