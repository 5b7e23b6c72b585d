// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/function.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <functional>

namespace lockstep::testing {

// An operation that changes nothing, and does something in its backward, before those of the
// operations that come before it in forward.
struct Within {
  static constexpr const char* name = "within";
  std::function<void()> body;
  Tensor forward(const Tensor& x) const { return x.clone(); }
  Tensor backward(const Backward&, const Tensor& grad) const {
    body();
    return grad;
  }
};

}  // namespace lockstep::testing
