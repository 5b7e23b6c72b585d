// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

// Tensors of one device joined into one.
namespace lockstep {

// The tensors one after the other along a dimension; their other sizes are equal, and they are on
// one device and of one dtype. `gather` joins tensors of several devices.
//
// **Torch counterpart.** torch.cat; empty tensors are not skipped, and dtypes are promoted only
// where autocast is on, to f32.
// **Threads and exceptions.** A ValueError for an empty list or an undefined tensor; a ShapeError,
// DtypeError or DeviceError names the tensors that do not fit.
Tensor cat(const std::vector<Tensor>& tensors, std::int64_t dim = 0);

namespace detail {

// `cat` of tensors that fit.
Tensor cat_at(const std::vector<Tensor>& tensors, std::size_t dim);

}  // namespace detail

// The tensors, all of one shape, along a new dimension before dimension `dim`.
//
// **Torch counterpart.** torch.stack.
// **Threads and exceptions.** As cat.
Tensor stack(const std::vector<Tensor>& tensors, std::int64_t dim = 0);

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/cat.ipp>
#endif
