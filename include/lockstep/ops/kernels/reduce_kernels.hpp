// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/ops/kernels/axis.hpp>
#include <lockstep/ops/kernels/blocks.hpp>
#include <lockstep/tensor/walk.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

// Sums, and the place of the greatest element.
namespace lockstep::detail {

// The sum of term(i) for each i below `count`, in an order that the count alone decides: several
// sums side by side, since in a single one each addition would wait for the one before. `kPairs`:
// twice as many, which pays for many terms.
template <bool kPairs = false, class Term>
auto sum_of_terms(std::size_t count, Term term) {
  constexpr std::size_t kLanes = 8;
  if constexpr (!kPairs) {
    if (count >= 16 * kLanes) return sum_of_terms<true>(count, term);
  }
  std::array<decltype(term(count)), kLanes> lanes{};
  std::size_t i = 0;
  if constexpr (kPairs) {
    auto more = lanes;
    for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
      for (std::size_t l = 0; l < kLanes; ++l) {
        lanes[l] += term(i + l);
        more[l] += term(i + kLanes + l);
      }
    }
    for (std::size_t l = 0; l < kLanes; ++l) lanes[l] += more[l];
  }
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t l = 0; l < kLanes; ++l) lanes[l] += term(i + l);
  }
  for (std::size_t l = 0; i < count; ++i, ++l) lanes[l] += term(i);
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
         ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

// What sums of floating-point elements, or of integers, which nothing divides, are kept in.
template <class In>
using SumOf = std::conditional_t<std::is_integral_v<In>, std::uint64_t, double>;

template <class Out, class Sum>
LOCKSTEP_HD Out finished(Sum sum, double divisor) {
  if constexpr (std::is_integral_v<Sum>) {
    return static_cast<Out>(sum);
  } else {
    return static_cast<Out>(divisor == 1 ? sum : sum / divisor);
  }
}

// Sums over some dimensions of a tensor with any strides.
//
// Floating-point sums are kept in double, in an order that only the shape decides: the same input
// gives the same bits. Integer sums wrap around.
template <class In, class Out>
struct SumCall {
  using Sum = SumOf<In>;

  View<const In> in;
  View<Out> out;
  Walk<1> kept;  // in the order of the result
  Walk<1> reduced;
  double divisor;

  void operator()() const {
    const bool across = !kept.sizes.empty() &&
                        (reduced.sizes.empty() || kept.inner_stride(0) < reduced.inner_stride(0));
    return across ? sum_across() : sum_along();
  }

 private:
  static constexpr std::int64_t kBlock = 64;

  // A block of results at once: the innermost elements belong to different results.
  void sum_across() const {
    const std::int64_t count = kept.inner_size();
    const std::int64_t step = kept.inner_stride(0);
    Out* to = out.data;
    kept.for_each_row([&](const auto& start) {
      for (std::int64_t first = 0; first < count; first += kBlock) {
        const auto width = static_cast<std::size_t>(std::min(kBlock, count - first));
        std::array<Sum, kBlock> sums{};
        reduced.for_each_row([&](const auto& offset) {
          const In* from = in.data + start[0] + offset[0] + first * step;
          const std::int64_t next = reduced.inner_stride(0);
          std::int64_t rows = reduced.inner_size();
          for (; step == 1 && rows >= 4; rows -= 4, from += 4 * next) {
            add_four(sums, from, width, next);
          }
          for (; rows > 0; --rows, from += next) add(sums, from, width, step);
        });
        for (std::size_t i = 0; i < width; ++i) *to++ = finished<Out>(sums[i], divisor);
      }
    });
  }

  // Reads and writes the sums once for four rows, which are `next` apart.
  static void add_four(std::array<Sum, kBlock>& sums, const In* from, std::size_t width,
                       std::int64_t next) {
    const auto at = [&](const In* row, std::size_t i) { return static_cast<Sum>(row[i]); };
    const In *const b = from + next, *const c = b + next, *const d = c + next;
    for (std::size_t i = 0; i < width; ++i) {
      sums[i] += (at(from, i) + at(b, i)) + (at(c, i) + at(d, i));
    }
  }

  static void add(std::array<Sum, kBlock>& sums, const In* from, std::size_t width,
                  std::int64_t step) {
    if (step == 1) {
      for (std::size_t i = 0; i < width; ++i) sums[i] += static_cast<Sum>(from[i]);
    } else {
      for (std::size_t i = 0; i < width; ++i) {
        sums[i] += static_cast<Sum>(from[static_cast<std::int64_t>(i) * step]);
      }
    }
  }

  void sum_along() const {
    const auto count = static_cast<std::size_t>(reduced.inner_size());
    const std::int64_t step = reduced.inner_stride(0);
    Out* to = out.data;
    kept.for_each_row([&](const auto& start) {
      const In* from = in.data + start[0];
      for (std::int64_t k = kept.inner_size(); k > 0; --k, from += kept.inner_stride(0)) {
        Sum sum{};
        reduced.for_each_row([&](const auto& offset) {
          const In* const row = from + offset[0];
          sum += step == 1 ? sum_of_terms(count,
                                          [row](std::size_t i) { return static_cast<Sum>(row[i]); })
                           : sum_of_terms(count, [row, step](std::size_t i) {
                               return static_cast<Sum>(row[static_cast<std::int64_t>(i) * step]);
                             });
        });
        *to++ = finished<Out>(sum, divisor);
      }
    });
  }
};

// A NaN counts as greater than any number, and the first of equals wins.
template <class T>
struct ArgmaxCall {
  View<const T> in;
  View<std::int64_t> out;
  Axis axis;

  // Columns are taken a block at a time, so that memory is read as it lies.
  void operator()() const {
    const std::size_t outer = axis.inner > 0 ? axis.outer : 0;
    for (std::size_t o = 0; o < outer; ++o) {
      if (axis.inner == 1) {
        out[o] = static_cast<std::int64_t>(of_row(in.data + o * axis.count));
        continue;
      }
      for (std::size_t i = 0; i < axis.inner; i += kBlockSize) {
        const T* const from = in.data + o * axis.count * axis.inner + i;
        of_columns(from, std::min(axis.inner - i, kBlockSize), out.data + o * axis.inner + i);
      }
    }
  }

 private:
  static bool wins(T x, T over) { return over == over && !(x <= over); }

  // Looks into a block only if something there wins: few do.
  std::size_t of_row(const T* x) const {
    std::size_t best = 0;
    for (std::size_t begin = 0; begin < axis.count; begin += kBlockSize) {
      const std::size_t end = std::min(begin + kBlockSize, axis.count);
      if (end == begin + kBlockSize && !any_wins(x + begin, x[best])) continue;
      for (std::size_t c = begin; c < end; ++c) {
        if (wins(x[c], x[best])) best = c;
      }
    }
    return best;
  }

  static bool any_wins(const T* block, T over) {
    int found = 0;
    for (std::size_t i = 0; i < kBlockSize; ++i) found |= block[i] <= over ? 0 : 1;
    return found != 0;
  }

  void of_columns(const T* from, std::size_t n, std::int64_t* best) const {
    T greatest[kBlockSize];
    std::copy_n(from, n, greatest);
    std::fill_n(best, n, 0);
    for (std::size_t c = 1; c < axis.count; ++c) {
      const T* const row = from + c * axis.inner;
      for (std::size_t i = 0; i < n; ++i) {
        const bool won = wins(row[i], greatest[i]);
        greatest[i] = won ? row[i] : greatest[i];
        best[i] = won ? static_cast<std::int64_t>(c) : best[i];
      }
    }
  }
};

}  // namespace lockstep::detail
