// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/autograd/autocast.hpp>
#include <lockstep/autograd/function.hpp>
#include <lockstep/autograd/saved.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/autocast.hpp>
#include <lockstep/ops/elementwise.hpp>
#include <lockstep/ops/expand.hpp>
#include <lockstep/ops/kernels/elementwise_kernels.hpp>
#include <lockstep/tensor/half.hpp>
#include <lockstep/tensor/scalar.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <array>

namespace lockstep::detail {

// a + alpha · b, or a − b.
template <bool subtracts>
struct AddOp {
  static constexpr const char* name = subtracts ? "sub" : "add";
  Scalar alpha = subtracts ? -1 : 1;
  Shape shape_a = {};
  Shape shape_b = {};

  Tensor forward(const Tensor& a, const Tensor& b) {
    shape_a = a.sizes();
    shape_b = b.sizes();
    return compute_elements<true>(a.dtype(), name, [&]<class T>(T) {
      if constexpr (subtracts) {
        return map<T, T>(name, a, b, Minus<T>{});
      } else {
        if (alpha == 1) return map<T, T>(name, a, b, Plus<T>{});
        return map<T, T>(name, a, b, PlusScaled<T>{scalar<T>(name, alpha)});
      }
    });
  }
  std::array<Tensor, 2> backward(const Backward& saved, const Tensor& grad) const {
    std::array<Tensor, 2> grads;
    if (saved.needs(0)) grads[0] = sum_to(grad, shape_a);
    if (saved.needs(1)) {
      grads[1] = sum_to(grad, shape_b);
      if (alpha != 1) grads[1] = mul(grads[1], alpha);
    }
    return grads;
  }
};

struct MulOp {
  static constexpr const char* name = "mul";
  Saved saved_a = {};
  Saved saved_b = {};
  Shape shape_a = {};
  Shape shape_b = {};

  Tensor forward(const Tensor& a, const Tensor& b) {
    shape_a = a.sizes();
    shape_b = b.sizes();
    if (b.requires_grad()) saved_a = a;
    if (a.requires_grad()) saved_b = b;
    return map_elements<Times, true>(name, a, b);
  }
  std::array<Tensor, 2> backward(const Backward& saved, const Tensor& grad) const {
    std::array<Tensor, 2> grads;
    if (saved.needs(0)) grads[0] = sum_to(mul(grad, saved(saved_b)), shape_a);
    if (saved.needs(1)) grads[1] = sum_to(mul(grad, saved(saved_a)), shape_b);
    return grads;
  }
};

struct DivOp {
  static constexpr const char* name = "div";
  Saved saved_a = {};
  Saved saved_b = {};
  Shape shape_a = {};
  Shape shape_b = {};

  Tensor forward(const Tensor& a, const Tensor& b) {
    shape_a = a.sizes();
    shape_b = b.sizes();
    if (b.requires_grad()) saved_a = a;
    saved_b = b;
    return map_elements<Over>(name, a, b);
  }
  std::array<Tensor, 2> backward(const Backward& saved, const Tensor& grad) const {
    std::array<Tensor, 2> grads;
    const Tensor b = saved(saved_b);
    const Tensor grad_a = div(grad, b);
    if (saved.needs(0)) grads[0] = sum_to(grad_a, shape_a);
    if (saved.needs(1)) grads[1] = neg(sum_to(mul(grad_a, div(saved(saved_a), b)), shape_b));
    return grads;
  }
};

// The forward of an operation of F with a number, which Bind makes one of the operands.
template <class Op, template <class> class F, template <class, class> class Bind,
          bool takes_integers = true>
struct WithNumber {
  Scalar number;
  Tensor forward(const Tensor& x) const {
    return compute_elements<takes_integers>(x.dtype(), Op::name, [&]<class T>(T) {
      return map<T, T>(x, Bind<T, F<T>>{{}, scalar<T>(Op::name, number)});
    });
  }
};

// x + number
struct AddScalarOp : WithNumber<AddScalarOp, Plus, BindRight> {
  static constexpr const char* name = "add";
  Tensor backward(const Backward&, const Tensor& grad) const { return grad; }
};

// x − number
struct SubScalarOp : WithNumber<SubScalarOp, Minus, BindRight> {
  static constexpr const char* name = "sub";
  Tensor backward(const Backward&, const Tensor& grad) const { return grad; }
};

// number − x
struct SubFromOp : WithNumber<SubFromOp, Minus, BindLeft> {
  static constexpr const char* name = "sub";
  Tensor backward(const Backward&, const Tensor& grad) const { return neg(grad); }
};

struct MulScalarOp : WithNumber<MulScalarOp, Times, BindRight> {
  static constexpr const char* name = "mul";
  Tensor backward(const Backward&, const Tensor& grad) const { return mul(grad, number); }
};

// x / number
struct DivideOp : WithNumber<DivideOp, Over, BindRight, false> {
  static constexpr const char* name = "div";
  Tensor backward(const Backward&, const Tensor& grad) const {
    return apply(DivideOp{{number}}, grad);
  }
};

// number / x
struct ReciprocalOp : WithNumber<ReciprocalOp, Over, BindLeft, false> {
  static constexpr const char* name = "div";
  Saved x = {};
  Tensor forward(const Tensor& input) {
    x = input;
    return WithNumber::forward(input);
  }
  Tensor backward(const Backward& saved, const Tensor& grad) const {
    const Tensor divisor = saved(x);
    return mul(div(div(grad, divisor), divisor), -number);
  }
};

// x · −1
struct NegOp : WithNumber<NegOp, Times, BindRight> {
  static constexpr const char* name = "neg";
  Tensor backward(const Backward&, const Tensor& grad) const { return neg(grad); }
};

}  // namespace lockstep::detail

namespace lockstep {

LOCKSTEP_INLINE Tensor add(const Tensor& a, const Tensor& b, Scalar alpha) {
  return detail::apply_to_both(detail::AddOp<false>{alpha}, a, b);
}

LOCKSTEP_INLINE Tensor add(const Tensor& a, Scalar b) { return apply(detail::AddScalarOp{{b}}, a); }

LOCKSTEP_INLINE Tensor sub(const Tensor& a, const Tensor& b) {
  return detail::apply_to_both(detail::AddOp<true>{}, a, b);
}

LOCKSTEP_INLINE Tensor sub(const Tensor& a, Scalar b) { return apply(detail::SubScalarOp{{b}}, a); }

LOCKSTEP_INLINE Tensor sub(Scalar a, const Tensor& b) { return apply(detail::SubFromOp{{a}}, b); }

LOCKSTEP_INLINE Tensor mul(const Tensor& a, const Tensor& b) {
  return detail::apply_to_both(detail::MulOp{}, a, b);
}

LOCKSTEP_INLINE Tensor mul(const Tensor& a, Scalar b) { return apply(detail::MulScalarOp{{b}}, a); }

LOCKSTEP_INLINE Tensor div(const Tensor& a, const Tensor& b) {
  return detail::apply_to_both(detail::DivOp{}, a, b);
}

LOCKSTEP_INLINE Tensor div(const Tensor& a, double b) { return apply(detail::DivideOp{{b}}, a); }

LOCKSTEP_INLINE Tensor div(double a, const Tensor& b) {
  if (is_autocast_enabled()) {
    const auto a_over = [a](const Tensor& x) { return div(a, x); };
    return detail::autocast_to_f32(a_over, b);
  }
  return apply(detail::ReciprocalOp{{a}}, b);
}

LOCKSTEP_INLINE Tensor neg(const Tensor& x) { return apply(detail::NegOp{{-1}}, x); }

}  // namespace lockstep
