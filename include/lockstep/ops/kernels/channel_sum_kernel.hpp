// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/ops/kernels/axis.hpp>
#include <lockstep/ops/kernels/reduce_kernels.hpp>
#include <lockstep/ops/kernels/vector_rows.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>

namespace lockstep::detail {

// Calls result(c, Σ term(i, c)) for every channel c, the sum over all places i of its elements; in
// double, and in an order that the shape alone decides.
template <class Term, class Result>
void sum_channels(const Axis& axis, Term term, const Result& result) {
  std::array<double, 64> sums;  // as many as stay in the nearest cache
  const std::size_t outer = axis.inner > 0 ? axis.outer : 0;
  const auto sum_of_four = [&term, next = axis.count](std::size_t row, std::size_t c) {
    const std::size_t i = row * next + c;
    return (term(i, c) + term(i + next, c)) + (term(i + 2 * next, c) + term(i + 3 * next, c));
  };
  if (axis.inner == 1 && axis.count < 4) {  // too few for a loop over channels
    for (std::size_t c = 0; c < axis.count; ++c) {
      double sum = 0;
      std::size_t o = 0;
      for (; o + 4 <= outer; o += 4) sum += sum_of_four(o, c);
      for (; o < outer; ++o) sum += term(o * axis.count + c, c);
      result(c, sum);
    }
    return;
  }
  for (std::size_t first = 0; first < axis.count; first += sums.size()) {
    const std::size_t count = std::min(sums.size(), axis.count - first);
    sums.fill(0);
    std::size_t o = 0;
    for (; axis.inner == 1 && o + 4 <= outer; o += 4) {  // the sums are read and written once
      for (std::size_t c = 0; c < count; ++c) sums[c] += sum_of_four(o, first + c);
    }
    for (; o < outer; ++o) {
      const std::size_t row = (o * axis.count + first) * axis.inner;
      if (axis.inner == 1) {
        for (std::size_t c = 0; c < count; ++c) sums[c] += term(row + c, first + c);
      } else {
        for (std::size_t c = 0; c < count; ++c) {
          const auto of_channel = [term, at = row + c * axis.inner, channel = first + c](
                                      std::size_t i) { return term(at + i, channel); };
          sums[c] += sum_of_terms(axis.inner, of_channel);
        }
      }
    }
    for (std::size_t c = 0; c < count; ++c) result(first + c, sums[c]);
  }
}

// out[c] = the sum of in[o, c, i] over all o and i.
template <class T>
struct ChannelSumCall {
  View<const T> in;
  View<T> out;
  Axis axis;

  void operator()() const {
    if (axis.inner == 1) {
      if constexpr (std::is_same_v<T, float>) {
        if (vectorized::column_sums(in.data, out.data, axis.outer, axis.count)) return;
      }
    }
    sum_channels(
        axis, [data = in.data](std::size_t i, std::size_t) { return static_cast<double>(data[i]); },
        [this](std::size_t c, double sum) { out[c] = static_cast<T>(sum); });
  }
};

}  // namespace lockstep::detail
