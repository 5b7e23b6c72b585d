// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/autocast.hpp>
#include <lockstep/error.hpp>
#include <lockstep/tensor/dtype.hpp>

namespace lockstep::detail {

LOCKSTEP_INLINE AutocastState& autocast_state() {
  static constinit thread_local AutocastState state;
  return state;
}

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE Dtype AutocastGuard::checked(Dtype dtype) {
  check<DtypeError>(dtype == Dtype::bf16 || dtype == Dtype::f16,
                    "AutocastGuard: expected bf16 or f16, got ", dtype);
  return dtype;
}

}  // namespace lockstep
