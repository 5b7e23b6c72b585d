// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/backend/launch.hpp>
#include <lockstep/config.hpp>
#include <lockstep/distributed/reduce_op.hpp>
#include <lockstep/distributed/thread/combine_kernel.hpp>
#include <lockstep/tensor/dtype.hpp>

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>

// Combines the ranks' parts of a reduction in the order of the ranks, in host memory.
namespace lockstep::distributed::detail {

// Elements of a block: its sum stays in the first-level cache while the ranks' parts are added.
template <class T>
inline constexpr std::size_t kBlock = 8192 / sizeof(Wide<T>);

// sum[i] = inputs[0][i] op inputs[1][i] op …, for a block of `count` elements.
template <class T, ReduceOp Op>
void combine_block(Wide<T>* sum, std::span<const void* const> inputs, std::size_t offset,
                   std::size_t count) {
  const auto at = [&](std::size_t rank) { return static_cast<const T*>(inputs[rank]) + offset; };
  const T* first = at(0);
  if (inputs.size() == 1) {
    for (std::size_t i = 0; i < count; ++i) sum[i] = static_cast<Wide<T>>(first[i]);
    return;
  }
  const T* second = at(1);
  LOCKSTEP_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) {
    sum[i] =
        combine_two<Wide<T>, Op>(static_cast<Wide<T>>(first[i]), static_cast<Wide<T>>(second[i]));
  }
  for (std::size_t rank = 2; rank < inputs.size(); ++rank) {
    const T* next = at(rank);
    LOCKSTEP_INDEPENDENT
    for (std::size_t i = 0; i < count; ++i) {
      sum[i] = combine_two<Wide<T>, Op>(sum[i], static_cast<Wide<T>>(next[i]));
    }
  }
}

// sum[i] /= ranks. For a power of two it multiplies by the inverse, which is exact, so the bits are
// the same, and much faster.
template <std::floating_point T>
void divide(T* sum, std::size_t count, std::size_t ranks) {
  if (std::has_single_bit(ranks)) {
    const T inverse = T{1} / static_cast<T>(ranks);
    for (std::size_t i = 0; i < count; ++i) sum[i] *= inverse;
  } else {
    const auto divisor = static_cast<T>(ranks);
    for (std::size_t i = 0; i < count; ++i) sum[i] /= divisor;
  }
}

template <class T, ReduceOp Op>
void reduce_elements(std::span<const void* const> inputs, std::span<void* const> outputs,
                     std::size_t begin, std::size_t end, bool average) {
  alignas(64) Wide<T> sum[kBlock<T>];
  alignas(64) T rounded[is_half<T> ? kBlock<T> : 1];
  for (std::size_t at = begin; at < end; at += kBlock<T>) {
    const std::size_t count = std::min(kBlock<T>, end - at);
    combine_block<T, Op>(sum, inputs, at, count);
    const void* result = sum;
    if constexpr (std::is_floating_point_v<Wide<T>>) {
      if (average) divide(sum, count, inputs.size());
    }
    if constexpr (is_half<T>) {
      for (std::size_t i = 0; i < count; ++i) rounded[i] = T(sum[i]);
      result = rounded;
    }
    for (void* output : outputs) {
      std::memcpy(static_cast<T*>(output) + at, result, count * sizeof(T));
    }
  }
}

// Writes the reduction of elements [begin, end) of all inputs, one per rank, to every output. An
// output may be an input, as long as nobody else reads or writes these elements meanwhile.
void reduce_ranks(Dtype dtype, ReduceOp op, std::span<const void* const> inputs,
                  std::span<void* const> outputs, std::size_t begin, std::size_t end);

// Where a rank's share begins when `count` elements are divided among `size` ranks, at cache lines.
// Rank r's share is [share_begin(r), share_begin(r + 1)).
std::size_t share_begin(std::size_t count, Dtype dtype, std::size_t rank, std::size_t size);

}  // namespace lockstep::distributed::detail

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/distributed/thread/impl/reduce_ranks.ipp>
#endif
