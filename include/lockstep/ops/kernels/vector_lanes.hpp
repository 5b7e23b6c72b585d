// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/ops/kernels/vector_math.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

// The definitions of vector_rows.hpp and layer_norm_kernels.hpp share these.
namespace lockstep::detail::vectorized {

inline constexpr std::size_t kLeastRow = 16;  // as many as the widest vector has

#if defined(LOCKSTEP_LIBMVEC)

inline constexpr std::size_t kRowsTogether = 8;      // whose columns are summed in f32
inline constexpr std::size_t kColumnsOfSums = 1024;  // which stay in the nearest cache

#define LOCKSTEP_EACH <lockstep/ops/kernels/impl/vector_lanes.inc>
#include <lockstep/ops/kernels/impl/for_each_instructions.inc>

// Ends a function that says whether vectors did its work.
#define LOCKSTEP_BY_INSTRUCTIONS(FUNCTION, ...)      \
  switch (by) {                                      \
    case Instructions::avx512:                       \
      return by_avx512::FUNCTION(__VA_ARGS__), true; \
    case Instructions::avx2:                         \
      return by_avx2::FUNCTION(__VA_ARGS__), true;   \
    case Instructions::sse2:                         \
      return by_sse2::FUNCTION(__VA_ARGS__), true;   \
    case Instructions::scalar:                       \
      break;                                         \
  }                                                  \
  return false

#else

template <class... Unused>
bool without_vectors(const Unused&...) {
  return false;
}
#define LOCKSTEP_BY_INSTRUCTIONS(FUNCTION, ...) return without_vectors(by, __VA_ARGS__)

#endif

}  // namespace lockstep::detail::vectorized
