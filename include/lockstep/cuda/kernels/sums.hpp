// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/cuda/launch/kernel.hpp>
#include <lockstep/cuda/launch/lanes.hpp>
#include <lockstep/cuda/launch/loops.hpp>
#include <lockstep/cuda/launch/strided_index.hpp>
#include <lockstep/cuda/memory/scratch.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/ops/kernels/reduce_kernels.hpp>
#include <lockstep/tensor/shape.hpp>
#include <lockstep/tensor/walk.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

// Sums on a GPU. Long ones are taken in parts whose sums are added up after them; what the parts
// are depends on the shape alone, so that the same input gives the same bits.
namespace lockstep::cuda {

template <class T>
struct SumOperands {
  View<const T> a;
  View<const T> b = {};       // the operands that the term does not have are empty
  View<const T> centre = {};  // one element a sum
};

// What is added up is a Term: it has the types In of its operands, Sum and Out, and a function
// at(operands, offset, k) that gives the element at an offset of the operands for sum number k.

template <class T, class Result = T>
struct ValueTerm {
  using In = T;
  using Sum = detail::SumOf<T>;
  using Out = Result;
  LOCKSTEP_HD static Sum at(const SumOperands<T>& in, std::int64_t offset, std::size_t) {
    return static_cast<Sum>(in.a.data[offset]);
  }
};

// The types of a term whose values, of elements of T, are added up in double.
template <class T>
struct DoubleTerm {
  using In = T;
  using Sum = double;
  using Out = T;
};

// The parts of the sums, one a row: part p of sum k is row p · sums + k.
template <class Term>
struct SumKernel {
  using Sum = typename Term::Sum;

  SumOperands<typename Term::In> in;
  View<Sum> parts;               // empty if there is one part a sum
  View<typename Term::Out> out;  // empty if there are several
  StridedIndex<1> kept;
  StridedIndex<1> reduced;
  bool by_thread;
  std::size_t sums;
  std::size_t terms;  // of a sum
  std::size_t terms_of_part;
  double divisor;

  // Where a thread's terms lie, one after the other: along one dimension, along two, where moving
  // on takes no division, and along more. kAtATime of them are read together.
  struct LineOffsets {
    static constexpr std::size_t kAtATime = 8;
    std::int64_t at, step;
    LOCKSTEP_HD std::int64_t next() {
      const std::int64_t now = at;
      at += step;
      return now;
    }
  };
  struct PlaneOffsets {
    static constexpr std::size_t kAtATime = 8;
    std::int64_t start, outer, inner;
    std::size_t size;  // of the inner dimension
    Division at, step;
    LOCKSTEP_HD std::int64_t next() {
      const std::int64_t now = start + static_cast<std::int64_t>(at.quotient) * outer +
                               static_cast<std::int64_t>(at.remainder) * inner;
      at.quotient += step.quotient;
      at.remainder += step.remainder;
      if (at.remainder >= size) {
        at.remainder -= size;
        ++at.quotient;
      }
      return now;
    }
  };
  struct AnyOffsets {
    static constexpr std::size_t kAtATime = 1;
    const StridedIndex<1>& index;
    std::int64_t start;
    std::size_t at, step;
    LOCKSTEP_HD std::int64_t next() {
      const std::int64_t now = start + index.at(at).of[0];
      at += step;
      return now;
    }
  };

  // The sum of so many terms in their order. Reads some before it adds them, so that a thread
  // has as many reads under way at a time.
  template <class Offsets>
  LOCKSTEP_HD Sum sum_of(std::size_t count, Offsets offsets, std::size_t k) const {
    constexpr std::size_t kAtATime = Offsets::kAtATime;
    Sum sum{};
    LOCKSTEP_UNROLL(1)
    for (; count >= kAtATime; count -= kAtATime) {
      Sum terms_read[kAtATime];
      for (Sum& term : terms_read) term = Term::at(in, offsets.next(), k);
      for (const Sum& term : terms_read) sum += term;
    }
    if constexpr (kAtATime > 1) {
      LOCKSTEP_UNROLL(1)
      for (; count > 0; --count) sum += Term::at(in, offsets.next(), k);
    }
    return sum;
  }

  LOCKSTEP_HD void operator()(std::size_t row, const Lanes& lanes) const {
    const Division place = divided(row, sums);
    const std::size_t k = place.remainder;
    const std::int64_t start = kept.at(k).of[0];
    const std::size_t first = place.quotient * terms_of_part + lanes.index;
    const std::size_t left = terms - place.quotient * terms_of_part;
    const std::size_t here = left < terms_of_part ? left : terms_of_part;
    const std::size_t count = lanes.index < here ? (here - lanes.index - 1) / lanes.count + 1 : 0;
    Sum sum{};
    if (count == 0) {
      // Nothing to read, and perhaps nothing to divide by.
    } else if (reduced.dims <= 1) {
      const std::int64_t step = reduced.dims == 0 ? 0 : reduced.strides[0][0];
      sum = sum_of(count,
                   LineOffsets{start + static_cast<std::int64_t>(first) * step,
                               static_cast<std::int64_t>(lanes.count) * step},
                   k);
    } else if (reduced.dims == 2) {
      const std::size_t size = reduced.sizes[1];
      sum = sum_of(count,
                   PlaneOffsets{start, reduced.strides[0][0], reduced.strides[0][1], size,
                                divided(first, size), divided(lanes.count, size)},
                   k);
    } else {
      sum = sum_of(count, AnyOffsets{reduced, start, first, lanes.count}, k);
    }
    sum = lanes.sum(sum);
    if (lanes.index != 0) return;
    if (parts.size > 0) {
      parts[row] = sum;
    } else {
      out[k] = detail::finished<typename Term::Out>(sum, divisor);
    }
  }
};

// Adds up the parts of each sum.
template <class Sum, class Out>
struct SumPartsKernel {
  View<const Sum> parts;
  View<Out> out;
  std::size_t sums;
  std::size_t parts_of_sum;
  double divisor;

  std::size_t columns() const { return parts_of_sum; }

  LOCKSTEP_HD void operator()(std::size_t k, const Lanes& lanes) const {
    Sum sum{};
    in_eights(
        lanes.index, lanes.count, parts_of_sum,
        [this, k](std::size_t p) { return parts[p * sums + k]; },
        [&sum](std::size_t, Sum part) { sum += part; });
    sum = lanes.sum(sum);
    if (lanes.index == 0) out[k] = detail::finished<Out>(sum, divisor);
  }
};

template <class Term>
using SumKernels = Kernels<SumKernel<Term>, SumPartsKernel<typename Term::Sum, typename Term::Out>>;

// So many terms of all sums together are in a GPU's cache (of 40 MB and more), with what lies
// beside them.
inline constexpr std::size_t kMostByWarps = std::size_t{1} << 20U;

// out[k] = the sum of the terms over `reduced`, divided, for every k of `kept`.
template <class Term>
void launch_sum(detail::StreamState& stream, const SumOperands<typename Term::In>& in,
                const View<typename Term::Out>& out, const detail::Walk<1>& kept,
                const detail::Walk<1>& reduced, double divisor) {
  using Sum = typename Term::Sum;
  using Out = typename Term::Out;
  const std::size_t sums = static_cast<std::size_t>(numel(kept.sizes));
  const std::size_t terms = static_cast<std::size_t>(numel(reduced.sizes));
  if (sums == 0) return;
  // Where sums lie side by side in memory, a thread for each reads all that memory gives, but waits
  // for one term after the other. A warp for each waits less and reads eight times as much: better
  // as long as all is in the cache, and for fewer than a warp's sums.
  const bool by_thread = sums >= kLanes && sums * terms > kMostByWarps && !kept.sizes.empty() &&
                         (reduced.sizes.empty() || kept.inner_stride(0) < reduced.inner_stride(0));
  // As many parts as keep a large GPU busy, and none of fewer terms than the second kernel costs.
  const std::size_t wanted = by_thread ? 131072 : 4096;
  const std::size_t shortest = by_thread ? 64 : 1024;
  const std::size_t most = std::max<std::size_t>(1, terms / shortest);
  const std::size_t about = std::clamp<std::size_t>(wanted / sums, 1, most);
  const std::size_t terms_of_part = std::max<std::size_t>(1, (terms + about - 1) / about);
  const std::size_t parts = std::max<std::size_t>(1, (terms + terms_of_part - 1) / terms_of_part);

  const bool one = parts == 1;
  const ScratchOf<Sum> partial(stream, one ? 0 : parts * sums);
  launch_kernel(
      stream, parts * sums,
      SumKernel<Term>{in, partial.view(), one ? out : View<Out>{}, strided_index(kept),
                      strided_index(reduced), by_thread, sums, terms, terms_of_part, divisor});
  if (!one) {
    launch_kernel(stream, sums,
                  SumPartsKernel<Sum, Out>{partial.const_view(), out, sums, parts, divisor});
  }
}

}  // namespace lockstep::cuda
