// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>

namespace lockstep {

// exp(x) divided by its sum along `dim`, without overflow. Half precision is computed in f32; under
// autocast the result stays f32.
//
// **Torch counterpart.** torch.nn.functional.softmax.
// **Backward.** Saves only the result; derivatives of any order.
// **Threads and exceptions.** An IndexError for a dimension out of range, a DtypeError for
// integers.
Tensor softmax(const Tensor& x, std::int64_t dim);

// The logarithm of `softmax`, exact even where softmax rounds to 0. Otherwise as softmax.
//
// **Torch counterpart.** torch.nn.functional.log_softmax.
Tensor log_softmax(const Tensor& x, std::int64_t dim);

namespace detail {

// softmax(x, dim), whose values are known to be `result`.
Tensor known_softmax(const Tensor& x, std::size_t dim, const Tensor& result);

}  // namespace detail

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/softmax.ipp>
#endif
