// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/error.hpp>
#include <lockstep/finite.hpp>
#include <lockstep/tensor/copy.hpp>
#include <lockstep/tensor/dtype.hpp>
#include <lockstep/tensor/scalar.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

// Conversion of a number to an element of a tensor.
namespace lockstep::detail {

// True if the number is in T's range. An integer type drops the fraction first, and has no NaN.
template <class T, class Number>
bool fits_in(Number number) {
  using Limits = std::numeric_limits<T>;
  if constexpr (std::is_floating_point_v<T>) {
    const auto real = static_cast<double>(number);
    return !is_finite(real) || std::abs(real) <= static_cast<double>(Limits::max());
  } else if constexpr (std::is_floating_point_v<Number>) {
    return is_finite(number) && std::trunc(number) >= static_cast<Number>(Limits::lowest()) &&
           number < static_cast<Number>(Limits::max()) + 1;
  } else {
    return std::cmp_greater_equal(number, +Limits::lowest()) &&
           std::cmp_less_equal(number, +Limits::max());
  }
}

template <class T>
[[noreturn, gnu::cold, gnu::noinline]] void fail_number(const char* operation, Scalar number) {
  const char* type = "the type";
  if constexpr (Element<T>) type = name(dtype_of<T>);
  fail<DtypeError>(operation, ": the number ", number, " does not fit ", type);
}

// Throws unless the number is in T's range; half-precision types included.
template <class T>
void check_fits(const char* operation, Scalar number) {
  const bool fits = number.visit([](auto value) {
    if constexpr (is_half<T>) {
      return is_finite(static_cast<float>(convert<T>(value)));
    } else {
      return std::is_same_v<T, bool> || fits_in<T>(value);
    }
  });
  if (!fits) fail_number<T>(operation, number);
}

// The number as an element, as an assignment converts it: an integer type drops the fraction, u8
// takes -255 to -1 modulo 256, and bool is whether it differs from 0. A DtypeError if it is out of
// range for an integer type or float.
template <class T>
T element_of(const char* operation, Scalar number) {
  return number.visit([&]<class Number>(Number value) {
    if constexpr (std::is_same_v<T, bool> || is_half<T>) {
      return convert<T>(value);
    } else if constexpr (std::is_same_v<T, std::uint8_t>) {
      const bool fits = is_finite(static_cast<double>(value)) && value > -256 && value < 256;
      if (!fits) fail_number<T>(operation, number);
      return static_cast<T>(static_cast<std::int64_t>(value));
    } else {
      if (!fits_in<T>(value)) fail_number<T>(operation, number);
      return static_cast<T>(value);
    }
  });
}

}  // namespace lockstep::detail
