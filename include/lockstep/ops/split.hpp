// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>
#include <vector>

// Splitting a tensor into parts that share its memory.
namespace lockstep {

// Splits a dimension into parts of the given lengths, which must fill it. All parts are views.
//
// **Torch counterpart.** torch.split(x, sizes, dim).
// **Threads and exceptions.** A ValueError unless the lengths add up to the dimension's size.
std::vector<Tensor> split(const Tensor& x, const std::vector<std::int64_t>& sizes,
                          std::int64_t dim = 0);

// Splits a dimension of size n into parts of length ⌈n / chunks⌉, the last perhaps shorter; there
// may be fewer than `chunks`. A dimension of size 0 gives one empty part.
//
// **Torch counterpart.** torch.chunk, which gives `chunks` parts of an empty dimension.
std::vector<Tensor> chunk(const Tensor& x, std::int64_t chunks, std::int64_t dim = 0);

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/split.ipp>
#endif
