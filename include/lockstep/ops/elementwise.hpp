// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/layout.hpp>
#include <lockstep/ops/operands.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/half.hpp>
#include <lockstep/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

// A function of one or two elements, applied to whole tensors.
namespace lockstep::detail {

template <class In, class Out, class F>
struct UnaryKernel {
  View<const In> in;
  View<Out> out;
  F f;
  LOCKSTEP_HD void operator()(std::size_t i) const { out[i] = f(in[i]); }
};

template <class In, class Out, class F>
struct BinaryKernel {
  View<const In> a;
  View<const In> b;
  View<Out> out;
  F f;
  LOCKSTEP_HD void operator()(std::size_t i) const { out[i] = f(a[i], b[i]); }
};

// The same for operands that are stretched to a common shape or lie scattered. Rows that are
// contiguous or a single element are told apart once a row, not once an element.
template <class In, class Out, class F>
struct BroadcastCall {
  View<const In> a;
  View<const In> b;
  View<Out> out;
  Walk<2> walk;
  F f;

  void operator()() const {
    if (out.size == 0) return;
    const auto count = static_cast<std::size_t>(walk.inner_size());
    const std::int64_t step_a = walk.inner_stride(0);
    const std::int64_t step_b = walk.inner_stride(1);
    Out* to = out.data;
    walk.for_each_row([&](const auto& offsets) {
      row(a.data + offsets[0], step_a, b.data + offsets[1], step_b, to, count);
      to += count;
    });
  }

 private:
  void row(const In* x, std::int64_t step_x, const In* y, std::int64_t step_y, Out* to,
           std::size_t count) const {
    if (step_x == 1 && step_y == 1) {
      LOCKSTEP_INDEPENDENT
      for (std::size_t i = 0; i < count; ++i) to[i] = f(x[i], y[i]);
    } else if (step_x == 1 && step_y == 0) {
      const In fixed = *y;
      LOCKSTEP_INDEPENDENT
      for (std::size_t i = 0; i < count; ++i) to[i] = f(x[i], fixed);
    } else if (step_x == 0 && step_y == 1) {
      const In fixed = *x;
      LOCKSTEP_INDEPENDENT
      for (std::size_t i = 0; i < count; ++i) to[i] = f(fixed, y[i]);
    } else {
      for (std::size_t i = 0; i < count; ++i, x += step_x, y += step_y) to[i] = f(*x, *y);
    }
  }
};

// f(x) for every element, as a new tensor; the dtypes are In and Out. Where In is float, x may be
// of half precision. Not recorded.
template <class In, class Out, class F>
Tensor map(const Tensor& x, F f) {
  if constexpr (std::is_same_v<In, float>) {
    if (is_half_precision(x.dtype())) return map<In, Out>(widened(x), f);
  }
  const Tensor from = packed(x);
  const Stream stream = current_stream(x.device());
  Tensor result = empty_on(stream, x.sizes(), dtype_of<Out>);
  launch(stream, static_cast<std::size_t>(from.numel()),
         UnaryKernel<In, Out, F>{input<In>(from), output<Out>(result, stream), f});
  return result;
}

// f(a, b) for every pair of elements, the operands stretched to a common shape; both are of dtype
// In (or of half precision where it is float) and on one device. Not recorded.
template <class In, class Out, class F>
Tensor map(const char* operation, const Tensor& a, const Tensor& b, F f) {
  if constexpr (std::is_same_v<In, float>) {
    if (is_half_precision(a.dtype())) return map<In, Out>(operation, widened(a), widened(b), f);
  }
  const Stream stream = current_stream(a.device());
  if (a.is_contiguous() && b.is_contiguous() && a.sizes() == b.sizes()) {
    Tensor result = empty_on(stream, a.sizes(), dtype_of<Out>);
    launch(stream, static_cast<std::size_t>(a.numel()),
           BinaryKernel<In, Out, F>{input<In>(a), input<In>(b), output<Out>(result, stream), f});
    return result;
  }
  const Shape shape = broadcast_shapes(operation, a.sizes(), b.sizes());
  Tensor result = empty_on(stream, shape, dtype_of<Out>);
  launch_call(
      stream,
      BroadcastCall<In, Out, F>{
          strided_input<In>(a), strided_input<In>(b), output<Out>(result, stream),
          make_walk<2>(shape, {broadcast_strides(a, shape), broadcast_strides(b, shape)}), f});
  return result;
}

// A number that meets tensors of T: an integer tensor takes only what it can hold exactly.
template <class T>
T scalar(const char* operation, double value) {
  if constexpr (std::is_integral_v<T>) {
    constexpr double kLimit = sizeof(T) == 8 ? 0x1p63 : 0x1p31;
    const bool fits = value >= -kLimit && value < kLimit;
    check<DtypeError>(fits && static_cast<double>(static_cast<T>(value)) == value, operation,
                      ": the number ", value, " does not fit a tensor of ", dtype_of<T>,
                      "; convert the tensor first, with to(Dtype::f32)");
  }
  return static_cast<T>(value);
}

// Integer arithmetic that wraps around instead of being undefined.
template <class T>
struct Wrapping {
  using type = T;
};
template <class T>
requires std::is_integral_v<T>
struct Wrapping<T> {
  using type = std::make_unsigned_t<T>;
};

template <class T>
struct Plus {
  LOCKSTEP_HD T operator()(T x, T y) const {
    using U = typename Wrapping<T>::type;
    return static_cast<T>(static_cast<U>(x) + static_cast<U>(y));
  }
};

template <class T>
struct PlusScaled {
  T alpha;
  LOCKSTEP_HD T operator()(T x, T y) const {
    using U = typename Wrapping<T>::type;
    return static_cast<T>(static_cast<U>(x) + static_cast<U>(alpha) * static_cast<U>(y));
  }
};

template <class T>
struct Minus {
  LOCKSTEP_HD T operator()(T x, T y) const {
    using U = typename Wrapping<T>::type;
    return static_cast<T>(static_cast<U>(x) - static_cast<U>(y));
  }
};

template <class T>
struct Times {
  LOCKSTEP_HD T operator()(T x, T y) const {
    using U = typename Wrapping<T>::type;
    return static_cast<T>(static_cast<U>(x) * static_cast<U>(y));
  }
};

template <class T>
struct Over {
  LOCKSTEP_HD T operator()(T x, T y) const { return x / y; }
};

// A function of two elements with a number for one of them.
template <class T, class F>
struct BindRight {
  F f;
  T y;
  LOCKSTEP_HD T operator()(T x) const { return f(x, y); }
};

template <class T, class F>
struct BindLeft {
  F f;
  T x;
  LOCKSTEP_HD T operator()(T y) const { return f(x, y); }
};

}  // namespace lockstep::detail
