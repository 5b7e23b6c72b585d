// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/ops/kernels/vector_math.hpp>
#include <lockstep/ops/kernels/vector_rows.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

// Loops over the elements of one row, on the host. A sum or a maximum is taken in lanes, so that it
// can be vectorised, and always in the same order.
namespace lockstep::detail {

inline constexpr std::int64_t kRowLanes = 16;

// row[i] = exp(row[i] − shift), where no element is greater than the shift.
template <class T>
void exp_minus(T* row, std::int64_t count, T shift) {
  if constexpr (std::is_same_v<T, float>) {
    if (vectorized::exp_minus(row, static_cast<std::size_t>(count), shift)) return;
  }
  for (std::int64_t i = 0; i < count; ++i) row[i] -= shift;
  vectorized::exp(row, row, static_cast<std::size_t>(count));
}

template <class T>
void scale_row(T* row, std::int64_t count, T factor) {
  for (std::int64_t i = 0; i < count; ++i) row[i] *= factor;
}

// Minus infinity if there are no elements. NaN is not seen.
template <class T>
T greatest_of(const T* row, std::int64_t count) {
  T lanes[kRowLanes];
  std::fill(lanes, lanes + kRowLanes, -std::numeric_limits<T>::infinity());
  std::int64_t i = 0;
  for (; i + kRowLanes <= count; i += kRowLanes) {
    for (std::int64_t l = 0; l < kRowLanes; ++l) {
      lanes[l] = lanes[l] < row[i + l] ? row[i + l] : lanes[l];
    }
  }
  for (; i < count; ++i) lanes[0] = std::max(lanes[0], row[i]);
  return count < kRowLanes ? lanes[0] : *std::max_element(lanes, lanes + kRowLanes);
}

// The sum of term(i) for each i below `count`; the lanes are summed up in double.
template <class T, class Term>
double sum_in_lanes(std::int64_t count, const Term& term) {
  T lanes[kRowLanes] = {};
  std::int64_t i = 0;
  for (; i + kRowLanes <= count; i += kRowLanes) {
    for (std::int64_t l = 0; l < kRowLanes; ++l) lanes[l] += term(i + l);
  }
  double sum = 0;
  for (; i < count; ++i) sum += static_cast<double>(term(i));
  for (const T lane : lanes) sum += static_cast<double>(lane);
  return sum;
}
template <class T>
double sum_of(const T* row, std::int64_t count) {
  return sum_in_lanes<T>(count, [row](std::int64_t i) { return row[i]; });
}
template <class T>
double dot(const T* a, const T* b, std::int64_t count) {
  return sum_in_lanes<T>(count, [a, b](std::int64_t i) { return a[i] * b[i]; });
}

}  // namespace lockstep::detail
