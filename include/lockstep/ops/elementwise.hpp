// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>
#include <lockstep/ops/kernels/elementwise_kernels.hpp>
#include <lockstep/ops/layout.hpp>
#include <lockstep/ops/operands.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/element.hpp>
#include <lockstep/tensor/empty.hpp>
#include <lockstep/tensor/half.hpp>
#include <lockstep/tensor/scalar.hpp>
#include <lockstep/tensor/tensor.hpp>
#include <lockstep/tensor/walk.hpp>

#include <cstddef>
#include <type_traits>

// Applies a function of one or two elements to whole tensors.
namespace lockstep::detail {

// The operands of a mapping without their types, for code that is compiled once for all functions.
struct MappedElements {
  const Stream& stream;
  View<const std::byte> a;  // sizes in elements
  View<const std::byte> b;  // for a function of two elements
  View<std::byte> out;
  const Walk<2>* walk;  // null if all are contiguous
  const void* f;

  template <class T>
  static View<const T> as(View<const std::byte> view) {
    return {static_cast<const T*>(static_cast<const void*>(view.data)), view.size};
  }
  template <class T>
  static View<T> as(View<std::byte> view) {
    return {static_cast<T*>(static_cast<void*>(view.data)), view.size};
  }
};
// How a function is mapped.
struct Mapping {
  Dtype operand;  // if it is f32, operands may be of half precision
  Dtype result;
  void (*launch)(const MappedElements& elements);
};

inline Tensor map_each(const Mapping& mapping, const Tensor& x, const void* f) {
  const Tensor from = mapping.operand == Dtype::f32 ? packed_wide(x) : packed(x);
  const Stream stream = current_stream(x.device());
  Tensor result = empty_on(stream, x.sizes(), mapping.result);
  mapping.launch(
      {stream, input<std::byte>(from), {}, output<std::byte>(result, stream), nullptr, f});
  return result;
}
inline Tensor map_pairs(const Mapping& mapping, const char* operation, const Tensor& a,
                        const Tensor& b, const void* f) {
  if (mapping.operand == Dtype::f32 && is_half_precision(a.dtype())) {
    return map_pairs(mapping, operation, widened(a), widened(b), f);
  }
  const Stream stream = current_stream(a.device());
  if (a.is_contiguous() && b.is_contiguous() && a.sizes() == b.sizes()) {
    Tensor result = empty_on(stream, a.sizes(), mapping.result);
    mapping.launch({stream, input<std::byte>(a), input<std::byte>(b),
                    output<std::byte>(result, stream), nullptr, f});
    return result;
  }
  Walk<2> walk;
  Tensor result = empty_on(stream, stretch(operation, a, b, walk), mapping.result);
  mapping.launch({stream, strided_input<std::byte>(a), strided_input<std::byte>(b),
                  output<std::byte>(result, stream), &walk, f});
  return result;
}

// f(x) for every element, as a new tensor. The dtypes are In and Out; for In = float x may be of
// half precision. Not recorded.
template <class In, class Out, class F>
Tensor map(const Tensor& x, F f) {
  using M = MappedElements;
  static constexpr Mapping kMapping{dtype_of<In>, dtype_of<Out>, [](const M& m) {
                                      launch(
                                          m.stream, m.a.size,
                                          UnaryKernel<In, Out, F>{M::as<In>(m.a), M::as<Out>(m.out),
                                                                  *static_cast<const F*>(m.f)});
                                    }};
  return map_each(kMapping, x, &f);
}

// f(a, b) for every pair of elements of operands that are broadcast against each other. Both are of
// dtype In (or of half precision for In = float) and on one device. Not recorded.
template <class In, class Out, class F>
Tensor map(const char* operation, const Tensor& a, const Tensor& b, F f) {
  using M = MappedElements;
  static constexpr Mapping kMapping{
      dtype_of<In>, dtype_of<Out>, [](const M& m) {
        const F& function = *static_cast<const F*>(m.f);
        if (m.walk) {
          launch_call(m.stream, BroadcastCall<In, Out, F>{M::as<In>(m.a), M::as<In>(m.b),
                                                          M::as<Out>(m.out), *m.walk, function});
        } else {
          launch(m.stream, m.out.size,
                 BinaryKernel<In, Out, F>{M::as<In>(m.a), M::as<In>(m.b), M::as<Out>(m.out),
                                          function});
        }
      }};
  return map_pairs(kMapping, operation, a, b, &f);
}

// The same for F<T>, with the type T in which tensors of this dtype are computed.
template <template <class> class F, bool takes_integers = false>
Tensor map_elements(const char* operation, const Tensor& x) {
  return compute_elements<takes_integers>(x.dtype(), operation,
                                          [&]<class T>(T) { return map<T, T>(x, F<T>{}); });
}
template <template <class> class F, bool takes_integers = false>
Tensor map_elements(const char* operation, const Tensor& a, const Tensor& b) {
  return compute_elements<takes_integers>(
      a.dtype(), operation, [&]<class T>(T) { return map<T, T>(operation, a, b, F<T>{}); });
}

// `value` rounded to `dtype` if that is of half precision, else as it is.
inline Scalar rounded_to_half(Dtype dtype, Scalar value) {
  const auto single = value.as<float>();
  if (dtype == Dtype::f16) return static_cast<float>(Half(single));
  if (dtype == Dtype::bf16) return static_cast<float>(BFloat16(single));
  return value;
}

// `value` as a T. A DtypeError if T is an integer type that cannot hold it exactly.
template <class T>
T scalar(const char* operation, Scalar value) {
  return value.visit([&]<class Number>(Number number) {
    if constexpr (std::is_integral_v<T>) {
      check<DtypeError>(fits_in<T>(number) && static_cast<Number>(static_cast<T>(number)) == number,
                        operation, ": the number ", number, " does not fit a tensor of ",
                        dtype_of<T>, "; convert the tensor first, with to(Dtype::f32)");
    }
    return static_cast<T>(number);
  });
}

}  // namespace lockstep::detail
