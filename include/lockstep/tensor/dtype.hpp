// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/host_device.hpp>
#include <lockstep/error.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <ostream>
#include <type_traits>

namespace lockstep {

// The element types of a tensor.
//
// **Torch counterpart.** torch::Dtype.
enum class Dtype : unsigned char { f32, f64, f16, bf16, i64, i32, u8, boolean };

// std::bit_cast cannot be called in a kernel; the builtin behind it can.

// IEEE 754 half precision: a storage format with conversions, which round to nearest even.
struct Half {
  std::uint16_t bits = 0;

  Half() = default;
  LOCKSTEP_HD constexpr explicit Half(float value) : bits(encode(value)) {}
  LOCKSTEP_HD constexpr explicit operator float() const { return decode(bits); }
  LOCKSTEP_HD friend constexpr bool operator==(Half a, Half b) { return float(a) == float(b); }

 private:
  LOCKSTEP_HD static constexpr std::uint16_t encode(float value) {
    const auto word = __builtin_bit_cast(std::uint32_t, value);
    const std::uint32_t sign = (word >> 16) & 0x8000u;
    const std::uint32_t magnitude = word & 0x7fffffffu;
    std::uint32_t out = 0;
    if (magnitude > 0x7f800000u) {
      out = 0x7e00u;  // NaN
    } else if (magnitude >= 0x477ff000u) {
      out = 0x7c00u;  // rounds to infinity
    } else if (magnitude >= 0x38800000u) {
      out = round_shift(magnitude - 0x38000000u, 13);
    } else if (magnitude >= 0x33000000u) {  // subnormal
      out = round_shift((magnitude & 0x7fffffu) | 0x800000u, 126u - (magnitude >> 23));
    }
    return static_cast<std::uint16_t>(sign | out);
  }
  LOCKSTEP_HD static constexpr std::uint32_t round_shift(std::uint32_t value, std::uint32_t shift) {
    const std::uint32_t half = 1u << (shift - 1);
    return (value + half - 1 + ((value >> shift) & 1u)) >> shift;
  }
  LOCKSTEP_HD static constexpr float decode(std::uint16_t half) {
    const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
    const std::uint32_t exponent = (half >> 10) & 0x1fu;
    const std::uint32_t mantissa = half & 0x3ffu;
    if (exponent == 0) {
      const float value = static_cast<float>(mantissa) * 0x1p-24f;
      return sign != 0 ? -value : value;
    }
    const std::uint32_t high = exponent == 31 ? 0x7f800000u : (exponent + 112u) << 23;
    return __builtin_bit_cast(float, sign | high | (mantissa << 13));
  }
};

// The upper half of an f32: a storage format with conversions, which round to nearest even.
struct BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() = default;
  LOCKSTEP_HD constexpr explicit BFloat16(float value) : bits(encode(value)) {}
  LOCKSTEP_HD constexpr explicit operator float() const {
    return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) << 16);
  }
  LOCKSTEP_HD friend constexpr bool operator==(BFloat16 a, BFloat16 b) {
    return float(a) == float(b);
  }

 private:
  LOCKSTEP_HD static constexpr std::uint16_t encode(float value) {
    const auto word = __builtin_bit_cast(std::uint32_t, value);
    if ((word & 0x7fffffffu) > 0x7f800000u) return 0x7fc0u;  // NaN
    return static_cast<std::uint16_t>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
  }
};

namespace detail {

// The dtype of a C++ type.
constexpr Dtype find_dtype(std::type_identity<float>) { return Dtype::f32; }
constexpr Dtype find_dtype(std::type_identity<double>) { return Dtype::f64; }
constexpr Dtype find_dtype(std::type_identity<Half>) { return Dtype::f16; }
constexpr Dtype find_dtype(std::type_identity<BFloat16>) { return Dtype::bf16; }
constexpr Dtype find_dtype(std::type_identity<std::int64_t>) { return Dtype::i64; }
constexpr Dtype find_dtype(std::type_identity<std::int32_t>) { return Dtype::i32; }
constexpr Dtype find_dtype(std::type_identity<std::uint8_t>) { return Dtype::u8; }
constexpr Dtype find_dtype(std::type_identity<bool>) { return Dtype::boolean; }
// std::complex and its like.
template <class T>
requires requires(const T& number) {
  typename T::value_type;
  number.real();
  number.imag();
}
constexpr Dtype find_dtype(std::type_identity<T>) {
  static_assert(!std::is_same_v<T, T>,
                "lockstep: tensors of complex numbers are not supported: hold real and imaginary "
                "parts in tensors of their own");
  return Dtype::f32;
}

// The type to compute in: for integers unsigned, so that overflow wraps around and is not
// undefined.
template <class T>
using Wrapping = typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>,
                                             std::type_identity<T>>::type;

// In the order of the enumeration.
inline constexpr std::size_t kElementSizes[] = {4, 8, 2, 2, 8, 4, 1, 1};

}  // namespace detail

// A C++ type that tensors can hold.
template <class T>
concept Element = requires {
  typename std::integral_constant<Dtype, detail::find_dtype(std::type_identity<T>())>;
};

template <Element T>
inline constexpr Dtype dtype_of = detail::find_dtype(std::type_identity<T>());

constexpr std::size_t element_size(Dtype dtype) {
  const auto place = static_cast<unsigned char>(dtype);
  return place < std::size(detail::kElementSizes) ? detail::kElementSizes[place] : 0;
}

// The dtypes that gradients can have.
constexpr bool is_floating_point(Dtype dtype) {
  return dtype == Dtype::f32 || dtype == Dtype::f64 || dtype == Dtype::f16 || dtype == Dtype::bf16;
}

constexpr const char* name(Dtype dtype) {
  constexpr const char* kNames[] = {"f32", "f64", "f16", "bf16", "i64", "i32", "u8", "bool"};
  return kNames[static_cast<unsigned char>(dtype)];
}

inline std::ostream& operator<<(std::ostream& out, Dtype dtype) { return out << name(dtype); }

namespace detail {

constexpr bool is_half_precision(Dtype dtype) {
  return dtype == Dtype::f16 || dtype == Dtype::bf16;
}

[[noreturn, gnu::cold, gnu::noinline]] inline void fail_dtype(const char* operation,
                                                              const char* expected, Dtype dtype) {
  fail<DtypeError>(operation, ": expected ", expected, ", got ", dtype);
}

[[noreturn, gnu::cold, gnu::noinline]] inline void fail_dtype() {
  fail<DtypeError>("a dtype outside the enumeration");
}

}  // namespace detail

// Calls `body(T{})` with the C++ type of `dtype`, which is f32 or f64; any other is a DtypeError
// that names the operation.
template <class Body>
decltype(auto) dispatch_floating(Dtype dtype, const char* operation, Body&& body) {
  if (dtype == Dtype::f32) return body(float{});
  if (dtype == Dtype::f64) return body(double{});
  detail::fail_dtype(operation, "f32 or f64", dtype);
}

// As dispatch_floating, for f32, f64, i64 and i32.
template <class Body>
decltype(auto) dispatch_numeric(Dtype dtype, const char* operation, Body&& body) {
  if (dtype == Dtype::f32) return body(float{});
  if (dtype == Dtype::f64) return body(double{});
  if (dtype == Dtype::i64) return body(std::int64_t{});
  if (dtype == Dtype::i32) return body(std::int32_t{});
  detail::fail_dtype(operation, "f32, f64, i64 or i32", dtype);
}

// As dispatch_floating, for every dtype.
template <class Body>
decltype(auto) dispatch_all(Dtype dtype, Body&& body) {
  if (dtype == Dtype::f32) return body(float{});
  if (dtype == Dtype::f64) return body(double{});
  if (dtype == Dtype::f16) return body(Half{});
  if (dtype == Dtype::bf16) return body(BFloat16{});
  if (dtype == Dtype::i64) return body(std::int64_t{});
  if (dtype == Dtype::i32) return body(std::int32_t{});
  if (dtype == Dtype::u8) return body(std::uint8_t{});
  if (dtype == Dtype::boolean) return body(bool{});
  detail::fail_dtype();
}

}  // namespace lockstep
