// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <concepts>
#include <cstdint>
#include <limits>
#include <ostream>
#include <type_traits>

namespace lockstep {

// A number that an operation takes beside a tensor. An integer that fits std::int64_t is kept as
// one, so it loses no digits; every other number is kept as a double.
//
// **Torch counterpart.** torch::Scalar.
class Scalar {
 public:
  template <std::convertible_to<double> T>
  constexpr Scalar(T number) : real_(static_cast<double>(number)) {
    if constexpr (std::is_integral_v<T>) {
      const auto whole = static_cast<std::int64_t>(number);
      // An unsigned integer may be too large.
      is_whole_ = static_cast<T>(whole) == number && (whole < 0) == (real_ < 0);
      if (is_whole_) whole_ = whole;
    }
  }

  // Calls f with the number, as an std::int64_t or as a double.
  template <class F>
  constexpr decltype(auto) visit(const F& f) const {
    return is_whole_ ? f(whole_) : f(real_);
  }

  template <class T>
  constexpr T as() const {
    return visit([](auto number) { return static_cast<T>(number); });
  }

  constexpr Scalar operator-() const {
    return visit([]<class T>(T number) -> Scalar {
      // -0 keeps its sign only as a double, and the least integer's negative does not fit.
      const bool has_negative = number != 0 && number != std::numeric_limits<T>::lowest();
      return has_negative ? Scalar(-number) : Scalar(-static_cast<double>(number));
    });
  }
  friend constexpr bool operator==(Scalar a, Scalar b) {
    if (a.is_whole_ && b.is_whole_) return a.whole_ == b.whole_;
    return a.as<double>() == b.as<double>();
  }
  friend std::ostream& operator<<(std::ostream& out, Scalar number) {
    return number.visit([&out](auto value) -> std::ostream& { return out << value; });
  }

 private:
  union {
    double real_;
    std::int64_t whole_;
  };
  bool is_whole_ = false;
};

}  // namespace lockstep
