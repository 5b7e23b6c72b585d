// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

// Derivatives of plain numbers: each operation on a Number notes its operands and how much it
// changes with each. It knows nothing of tensors, shapes or the library.
namespace lockstep::testing::programs {

class Tape {
 public:
  std::int32_t note(std::int32_t a, double da, std::int32_t b = -1, double db = 0) {
    entries_.push_back({a, b, da, db});
    return static_cast<std::int32_t>(entries_.size()) - 1;
  }
  // The derivatives of the sum of `seeds[i]` times entry `ids[i]` by every entry.
  std::vector<double> gradients(const std::vector<std::int32_t>& ids,
                                const std::vector<double>& seeds) const {
    std::vector<double> result(entries_.size(), 0.0);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] >= 0) result[static_cast<std::size_t>(ids[i])] += seeds[i];
    }
    for (std::size_t i = entries_.size(); i-- > 0;) {
      const Entry& e = entries_[i];
      if (result[i] == 0) continue;
      if (e.a >= 0) result[static_cast<std::size_t>(e.a)] += e.da * result[i];
      if (e.b >= 0) result[static_cast<std::size_t>(e.b)] += e.db * result[i];
    }
    return result;
  }

  static inline thread_local Tape* current = nullptr;
  // Whether a function was met so close to a place where its derivative jumps that a rounding could
  // decide between the two sides.
  bool kink = false;
  // Likewise for values themselves.
  bool tie = false;

 private:
  struct Entry {
    std::int32_t a;
    std::int32_t b;
    double da;
    double db;
  };
  std::vector<Entry> entries_;
};

struct Number {
  double value = 0;
  std::int32_t id = -1;  // −1: a constant

  Number() = default;
  Number(double constant) : value(constant) {}  // NOLINT: a number is a constant
  Number(double v, std::int32_t entry) : value(v), id(entry) {}

  static Number variable(double v) { return {v, Tape::current->note(-1, 0)}; }
};

inline Number noted(double value, const Number& a, double da) {
  return a.id < 0 ? Number(value) : Number(value, Tape::current->note(a.id, da));
}
inline Number noted(double value, const Number& a, double da, const Number& b, double db) {
  if (a.id < 0 && b.id < 0) return {value};
  return {value, Tape::current->note(a.id, da, b.id, db)};
}

inline Number operator+(const Number& a, const Number& b) {
  return noted(a.value + b.value, a, 1, b, 1);
}
inline Number operator-(const Number& a, const Number& b) {
  return noted(a.value - b.value, a, 1, b, -1);
}
inline Number operator*(const Number& a, const Number& b) {
  return noted(a.value * b.value, a, b.value, b, a.value);
}
inline Number operator/(const Number& a, const Number& b) {
  const double q = a.value / b.value;
  return noted(q, a, 1 / b.value, b, -q / b.value);
}
inline Number exp(const Number& x) {
  const double y = std::exp(x.value);
  return noted(y, x, y);
}
inline Number log(const Number& x) { return noted(std::log(x.value), x, 1 / x.value); }
inline Number sqrt(const Number& x) {
  const double y = std::sqrt(x.value);
  return noted(y, x, 0.5 / y);
}
inline Number tanh(const Number& x) {
  const double y = std::tanh(x.value);
  return noted(y, x, 1 - y * y);
}
inline Number erf(const Number& x) {
  return noted(std::erf(x.value), x, 2 / std::sqrt(std::acos(-1.0)) * std::exp(-x.value * x.value));
}
inline Number sigmoid(const Number& x) { return 1.0 / (1.0 + exp(0.0 - x)); }

inline constexpr double kNear = 1e-7;

inline Number relu(const Number& x) {
  if (x.value != 0 && std::abs(x.value) < kNear) Tape::current->kink = true;
  return x.value > 0 ? x : noted(0, x, 0);
}
inline Number leaky_relu(const Number& x) {
  if (x.value != 0 && std::abs(x.value) < kNear) Tape::current->kink = true;
  return x.value > 0 ? x : noted(0.01 * x.value, x, 0.01);
}
inline Number clamp(const Number& x, double least, double most) {
  for (const double bound : {least, most}) {
    if (std::abs(x.value - bound) < kNear) Tape::current->kink = true;
  }
  if (x.value < least || x.value > most) return noted(x.value < least ? least : most, x, 0);
  return x;
}
inline Number abs(const Number& x) {
  if (x.value != 0 && std::abs(x.value) < kNear) Tape::current->kink = true;
  return noted(std::abs(x.value), x, x.value > 0 ? 1 : x.value < 0 ? -1 : 0);
}
// The greater, the first of equals.
inline Number greater(const Number& a, const Number& b) {
  const bool zeros = a.value == 0 && b.value == 0;
  if (!zeros && std::abs(a.value - b.value) < kNear) Tape::current->kink = true;
  return b.value > a.value ? b : a;
}

// As the function of tensors: equal ones share.
inline Number maximum(const Number& a, const Number& b) {
  if (a.value != b.value) {
    if (std::abs(a.value - b.value) < kNear) Tape::current->kink = true;
    return a.value > b.value ? a : b;
  }
  if (a.value != 0 && a.id != b.id) Tape::current->kink = true;
  return noted(a.value, a, 0.5, b, 0.5);
}
inline bool is_greater(const Number& a, const Number& b) {
  const bool zeros = a.value == 0 && b.value == 0;
  if (a.id != b.id && !zeros && std::abs(a.value - b.value) < kNear) Tape::current->tie = true;
  return a.value > b.value;
}

}  // namespace lockstep::testing::programs
