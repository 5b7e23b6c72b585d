// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstdint>

namespace lockstep {

// How gelu is computed.
enum class GeluApproximation : std::uint8_t { none, tanh };

// x · Φ(x) for floating-point tensors, where Φ is the distribution function of the standard normal,
// or its approximation by tanh.
//
// **Torch counterpart.** torch.nn.functional.gelu.
Tensor gelu(const Tensor& x, GeluApproximation approximate = GeluApproximation::none);

}  // namespace lockstep

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/impl/gelu.ipp>
#endif
