// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "parallel/programs/program.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

// Derivatives of plain numbers: each operation on a Number notes its operands and how much it
// changes with each. It knows nothing of tensors, shapes or the library.
//
// A number has a bound of its error as well: by how much another computation of it may be off whose
// operations each round once, to `unit` of what they give. It is counted in units. An operation
// hands its operands' errors on by its derivatives and adds its own; with second derivatives, by
// how much its first ones are off, which is what a gradient's error comes from.
namespace lockstep::testing::programs {

// A bound counts one rounding a number. Where the library rounds more often, it is by few:
// functions of the vector units are off by up to two units, a constant is rounded before it is
// multiplied, a gradient is summed over chunks and uses one after the other.
inline constexpr double kSlack = 4;

// How a function changes near a place: its derivatives by its operands.
struct Slopes {
  double a = 0;
  double b = 0;
  double aa = 0;
  double ab = 0;
  double bb = 0;
  double jump = 0;  // by how much the first ones may be others, where a rounding decides
  double off = 0;   // by how many units they are off if they are computed from the rounded result
};

class Tape {
 public:
  explicit Tape(Precision precision) : precision_(precision) {}

  struct Entry {
    std::int32_t a = -1;
    std::int32_t b = -1;
    Slopes slopes;
    double error_a = 0;  // of the first derivatives
    double error_b = 0;
  };
  struct Derivative {
    double value = 0;
    double error = 0;   // in units
    double second = 0;  // by the same entry, of all the derivatives times their directions
  };

  std::int32_t note(const Entry& entry) {
    entries_.push_back(entry);
    return static_cast<std::int32_t>(entries_.size()) - 1;
  }
  std::int32_t note_variable() { return note({}); }

  // The derivatives of the sum of `seeds[i]` times entry `ids[i]` by every entry. Directions are
  // those of the first entries, the variables.
  std::vector<Derivative> derivatives(const std::vector<std::int32_t>& ids,
                                      const std::vector<double>& seeds,
                                      std::vector<double> directions = {}) const {
    directions.resize(entries_.size(), 0.0);
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      const Entry& e = entries_[i];
      if (e.a >= 0) directions[i] += e.slopes.a * directions[static_cast<std::size_t>(e.a)];
      if (e.b >= 0) directions[i] += e.slopes.b * directions[static_cast<std::size_t>(e.b)];
    }
    std::vector<Derivative> result(entries_.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0) continue;
      Derivative& sum = result[static_cast<std::size_t>(ids[i])];
      sum.value += seeds[i];
      sum.error += rounding_of(seeds[i]);
    }
    const auto hand_on = [&](const Derivative& from, std::int32_t to, double slope, double error,
                             double second) {
      if (to < 0) return;
      Derivative& sum = result[static_cast<std::size_t>(to)];
      const double value = slope * from.value;
      sum.value += value;
      // The product is rounded, and so is the sum with what is there.
      sum.error = bound(sum.error + std::abs(slope) * from.error + error * std::abs(from.value) +
                        error * from.error * kSlack * precision_.unit + 2 * rounding_of(value));
      sum.second += slope * from.second + second * from.value;
    };
    for (std::size_t i = entries_.size(); i-- > 0;) {
      const Derivative from = result[i];
      if (from.value == 0 && from.error == 0 && from.second == 0) continue;
      const auto& [a, b, slopes, error_a, error_b] = entries_[i];
      const double along_a = a < 0 ? 0 : directions[static_cast<std::size_t>(a)];
      const double along_b = b < 0 ? 0 : directions[static_cast<std::size_t>(b)];
      hand_on(from, a, slopes.a, error_a, slopes.aa * along_a + slopes.ab * along_b);
      hand_on(from, b, slopes.b, error_b, slopes.ab * along_a + slopes.bb * along_b);
    }
    return result;
  }

  // An error of which nothing is known is one without bound.
  static double bound(double error) {
    return std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
  }
  double unit() const { return precision_.unit; }
  double rounding_of(double value) const {
    return value == 0 ? 0 : std::max(std::abs(value), precision_.least);
  }
  // Whether a number that is off by so many units may have another sign.
  bool near_zero(double value, double error) const {
    return error > 0 && std::abs(value) <= kSlack * precision_.unit * error;
  }
  // Notes that a rounding may decide what a value is.
  void leave_open() { open_ = true; }
  void look_at(double value) {
    if (std::abs(value) > precision_.most / 4) leave_open();
  }
  bool open() const { return open_; }

  static inline thread_local Tape* current = nullptr;

 private:
  const Precision precision_;
  std::vector<Entry> entries_;
  bool open_ = false;
};

struct Number {
  double value = 0;
  std::int32_t id = -1;  // −1: a constant
  double error = 0;      // in units

  Number() = default;
  Number(double constant) : value(constant) {}  // NOLINT: a number is a constant
  Number(double v, std::int32_t entry, double e) : value(v), id(entry), error(e) {}

  Number constant() const { return {value, -1, error}; }
};

// What a function of the operands gives, if it rounds what it gives by `rounding` units of that.
inline Number noted(double value, const Slopes& slopes, const Number& a, const Number& b = {},
                    double rounding = 1) {
  Tape& tape = *Tape::current;
  const Slopes size{std::abs(slopes.a),  std::abs(slopes.b),  std::abs(slopes.aa),
                    std::abs(slopes.ab), std::abs(slopes.bb), slopes.jump};
  const double off = slopes.off + slopes.jump / (kSlack * tape.unit());
  const double error_a = size.aa * a.error + size.ab * b.error + off;
  const double error_b = size.ab * a.error + size.bb * b.error + off;
  const double curved =
      size.aa * a.error * a.error + 2 * size.ab * a.error * b.error + size.bb * b.error * b.error;
  const double error =
      Tape::bound((size.a + size.jump) * a.error + (size.b + size.jump) * b.error +
                  kSlack * tape.unit() / 2 * curved + rounding * tape.rounding_of(value));
  tape.look_at(value);
  if (a.id < 0 && b.id < 0) return {value, -1, error};
  return {value, tape.note({a.id, b.id, slopes, Tape::bound(error_a), Tape::bound(error_b)}),
          error};
}

inline Number operator+(const Number& a, const Number& b) {
  return noted(a.value + b.value, {.a = 1, .b = 1}, a, b);
}
inline Number operator-(const Number& a, const Number& b) {
  return noted(a.value - b.value, {.a = 1, .b = -1}, a, b);
}
inline Number operator*(const Number& a, const Number& b) {
  return noted(a.value * b.value, {.a = b.value, .b = a.value, .ab = 1}, a, b);
}
inline Number operator/(const Number& a, const Number& b) {
  const double q = a.value / b.value;
  const double r = 1 / b.value;
  return noted(q, {.a = r, .b = -q * r, .ab = -r * r, .bb = 2 * q * r * r}, a, b);
}
// One of the steps of a sum within an operation, which are made in f32 at least.
inline Number& operator+=(Number& sum, const Number& x) {
  const double rounding = std::min(1.0, 0x1p-24 / Tape::current->unit());
  return sum = noted(sum.value + x.value, {.a = 1, .b = 1}, sum, x, rounding);
}
// The end of one, if it was made of what had not been rounded for it.
inline Number rounded(const Number& x) { return noted(x.value, {.a = 1}, x); }
inline Number exp(const Number& x) {
  const double y = std::exp(x.value);
  return noted(y, {.a = y, .aa = y}, x);
}
inline Number log(const Number& x) {
  return noted(std::log(x.value), {.a = 1 / x.value, .aa = -1 / (x.value * x.value)}, x);
}
inline Number sqrt(const Number& x) {
  const double y = std::sqrt(x.value);
  return noted(y, {.a = 0.5 / y, .aa = -0.25 / (x.value * y)}, x);
}
inline Number tanh(const Number& x) {
  const double y = std::tanh(x.value);
  const double slope = 1 - y * y;
  return noted(y, {.a = slope, .aa = -2 * y * slope, .off = 2 * y * y}, x);
}
inline Number erf(const Number& x) {
  const double slope = 2 / std::sqrt(std::acos(-1.0)) * std::exp(-x.value * x.value);
  return noted(std::erf(x.value), {.a = slope, .aa = -2 * x.value * slope}, x);
}
inline Number sigmoid(const Number& x) {
  const double y = 1 / (1 + std::exp(-x.value));
  const double slope = y / (1 + std::exp(x.value));
  const double bend = 1 - 2 * y;
  return noted(y, {.a = slope, .aa = slope * bend, .off = y * std::abs(bend)}, x);
}

// A function that is x times one number below zero and x times another above.
inline Number bent(const Number& x, double below, double at_zero, double above) {
  const double slope = x.value > 0 ? above : x.value < 0 ? below : at_zero;
  const bool near = Tape::current->near_zero(x.value, x.error);
  return noted(slope * x.value, {.a = slope, .jump = near ? above - below : 0}, x);
}
inline Number relu(const Number& x) { return bent(x, 0, 0, 1); }
inline Number leaky_relu(const Number& x) { return bent(x, 0.01, 0.01, 1); }
inline Number abs(const Number& x) { return bent(x, -1, 0, 1); }
inline Number clamp(const Number& x, double least, double most) {
  bool near = false;
  for (const double bound : {least, most}) {
    near = near || Tape::current->near_zero(x.value - bound, x.error);
  }
  const double slope = x.value > least && x.value < most ? 1 : 0;
  return noted(std::clamp(x.value, least, most), {.a = slope, .jump = near ? 1.0 : 0.0}, x, {}, 0);
}
inline bool may_be_equal(const Number& a, const Number& b) {
  return Tape::current->near_zero(a.value - b.value, a.error + b.error);
}
// The one or the other.
inline Number chosen(const Number& a, const Number& b, double share_of_a) {
  const double share_of_b = 1 - share_of_a;
  const double jump = may_be_equal(a, b) ? 1 : 0;
  const double value = share_of_a == 0 ? b.value : a.value;
  return noted(value, {.a = share_of_a, .b = share_of_b, .jump = jump}, a, b, 0);
}
// The greater, the first of equals.
inline Number greater(const Number& a, const Number& b) {
  return a.id >= 0 && a.id == b.id ? a : chosen(a, b, b.value > a.value ? 0 : 1);
}
// As the function of tensors: equal ones share.
inline Number maximum(const Number& a, const Number& b) {
  if (a.id >= 0 && a.id == b.id) return a;
  return chosen(a, b, a.value > b.value ? 1 : a.value < b.value ? 0 : 0.5);
}
inline bool is_greater(const Number& a, const Number& b) {
  if ((a.id < 0 || a.id != b.id) && may_be_equal(a, b)) Tape::current->leave_open();
  return a.value > b.value;
}

}  // namespace lockstep::testing::programs
