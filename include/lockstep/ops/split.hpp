// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>
#include <vector>

// A tensor in parts that share its memory.
namespace lockstep {

// Parts of the lengths listed along a dimension, which they fill; all of them views.
//
// **Torch counterpart.** torch.split(x, sizes, dim).
// **Threads and exceptions.** A ValueError unless the lengths sum up to the size of the dimension.
std::vector<Tensor> split(const Tensor& x, const std::vector<std::int64_t>& sizes,
                          std::int64_t dim = 0);

// Up to `chunks` parts of equal length ⌈n / chunks⌉, the last perhaps shorter: there may be fewer.
// A dimension of size 0 gives one part, which is empty.
//
// **Torch counterpart.** torch.chunk, except that of an empty dimension torch makes `chunks`.
std::vector<Tensor> chunk(const Tensor& x, std::int64_t chunks, std::int64_t dim = 0);

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/split.ipp>
#endif
