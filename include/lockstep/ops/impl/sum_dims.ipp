// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/saved.hpp>
#include <lockstep/ops/expand.hpp>
#include <lockstep/ops/kernels/sum_kernel.hpp>
#include <lockstep/ops/reshape.hpp>
#include <lockstep/ops/sum_dims.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>

namespace lockstep::detail {

struct SumOp {
  static constexpr const char* name = "sum";
  DimSet over;
  Shape shape;
  double divisor = 1;
  Shape from = {};

  Tensor forward(const Tensor& x) {
    from = x.sizes();
    return sum_over(x, over, shape, divisor);
  }
  Tensor backward(const Backward&, const Tensor& grad) const {
    Shape aligned = from;
    for (std::size_t d = 0; d < aligned.size(); ++d) {
      if (over[d]) aligned[d] = 1;
    }
    const Tensor stretched = expand_to(reshape(grad, aligned), from);
    return divisor == 1 ? stretched : apply(Divide{divisor}, stretched);
  }

 private:
  // Linear, and its own transpose. The public `div` is built on this header.
  struct Divide {
    static constexpr const char* name = "div";
    double divisor;
    Tensor forward(const Tensor& x) const { return quotient(x, divisor); }
    Tensor backward(const Backward&, const Tensor& grad) const {
      return apply(Divide{divisor}, grad);
    }
  };
};

LOCKSTEP_INLINE Tensor sum_dims(const Tensor& x, const DimSet& over, const Shape& shape,
                                double divisor) {
  return apply(SumOp{over, shape, divisor}, x);
}

}  // namespace lockstep::detail
