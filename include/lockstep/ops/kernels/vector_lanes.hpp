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

// Vectors of one set of instructions, for rows of f32. A macro, for the reason that vector_math.ipp
// gives; V, S and D are vectors of so many BYTES, and WIDEN is the instruction that makes a D of
// half as many floats as a V has.
//
// A row that is no multiple of a vector ends with one that lies on part of the vector before: its
// first `skipped` lanes have been there.
#define LOCKSTEP_VECTOR_LANES(BY, INSTRUCTIONS, BYTES, WIDEN)                                 \
  namespace BY {                                                                              \
  using V [[gnu::vector_size(BYTES)]] = float;                                                \
  using S [[gnu::vector_size(BYTES)]] = std::int32_t;                                         \
  using U [[gnu::vector_size(BYTES)]] = std::uint32_t;                                        \
  using D [[gnu::vector_size(BYTES)]] = double;                                               \
  constexpr std::size_t kLanes = BYTES / sizeof(float);                                       \
  constexpr std::size_t kChunk = 16 * kLanes;                                                 \
                                                                                              \
  [[gnu::target(INSTRUCTIONS)]] inline V read(const float* from) {                            \
    V x;                                                                                      \
    std::memcpy(&x, from, sizeof(V));                                                         \
    return x;                                                                                 \
  }                                                                                           \
  [[gnu::target(INSTRUCTIONS)]] inline void write(float* to, V x) {                           \
    std::memcpy(to, &x, sizeof(V));                                                           \
  }                                                                                           \
  [[gnu::target(INSTRUCTIONS)]] inline D widened(const float* from) {                         \
    D x;                                                                                      \
    __asm__(WIDEN " {%1, %0|%0, %1}"                                                          \
            : "=v"(x)                                                                         \
            : "m"(*static_cast<const float(*)[kLanes / 2]>(static_cast<const void*>(from)))); \
    return x;                                                                                 \
  }                                                                                           \
  [[gnu::target(INSTRUCTIONS)]] inline V greater(V a, V b) { return a > b ? a : b; }          \
                                                                                              \
  /* `filling` in the lanes that have been there. */                                          \
  [[gnu::target(INSTRUCTIONS)]] inline V rest_of(V x, std::size_t skipped, float filling) {   \
    S lane{};                                                                                 \
    for (std::size_t l = 0; l < kLanes; ++l) lane[l] = static_cast<std::int32_t>(l);          \
    return lane >= static_cast<std::int32_t>(skipped) ? x : V{} + filling;                    \
  }                                                                                           \
                                                                                              \
  [[gnu::target(INSTRUCTIONS)]] inline float greatest(V x) {                                  \
    float lanes[kLanes];                                                                      \
    write(lanes, x);                                                                          \
    for (std::size_t n = kLanes / 2; n > 0; n /= 2) {                                         \
      for (std::size_t l = 0; l < n; ++l) lanes[l] = std::max(lanes[l], lanes[l + n]);        \
    }                                                                                         \
    return lanes[0];                                                                          \
  }                                                                                           \
  [[gnu::target(INSTRUCTIONS)]] inline double total(D x) {                                    \
    double lanes[kLanes / 2];                                                                 \
    std::memcpy(lanes, &x, sizeof(D));                                                        \
    for (std::size_t n = kLanes / 4; n > 0; n /= 2) {                                         \
      for (std::size_t l = 0; l < n; ++l) lanes[l] += lanes[l + n];                           \
    }                                                                                         \
    return lanes[0];                                                                          \
  }                                                                                           \
  [[gnu::target(INSTRUCTIONS)]] inline D wide_sum(V x) {                                      \
    float lanes[kLanes];                                                                      \
    write(lanes, x);                                                                          \
    return widened(lanes) + widened(lanes + kLanes / 2);                                      \
  }                                                                                           \
                                                                                              \
  [[gnu::target(INSTRUCTIONS)]] inline void add_wide(double* sums, V x) {                     \
    float lanes[kLanes];                                                                      \
    write(lanes, x);                                                                          \
    for (std::size_t half = 0; half < kLanes; half += kLanes / 2) {                           \
      D sum;                                                                                  \
      std::memcpy(&sum, sums + half, sizeof(D));                                              \
      sum += widened(lanes + half);                                                           \
      std::memcpy(sums + half, &sum, sizeof(D));                                              \
    }                                                                                         \
  }                                                                                           \
  }
LOCKSTEP_VECTOR_LANES(rows_by_sse2, "sse2", 16, "cvtps2pd")
LOCKSTEP_VECTOR_LANES(rows_by_avx2, "avx2,fma", 32, "vcvtps2pd")
LOCKSTEP_VECTOR_LANES(rows_by_avx512, "avx512f,avx512dq", 64, "vcvtps2pd")
#undef LOCKSTEP_VECTOR_LANES

// Ends a function that says whether vectors did its work.
#define LOCKSTEP_BY_INSTRUCTIONS(FUNCTION, ...)           \
  switch (by) {                                           \
    case Instructions::avx512:                            \
      return rows_by_avx512::FUNCTION(__VA_ARGS__), true; \
    case Instructions::avx2:                              \
      return rows_by_avx2::FUNCTION(__VA_ARGS__), true;   \
    case Instructions::sse2:                              \
      return rows_by_sse2::FUNCTION(__VA_ARGS__), true;   \
    case Instructions::scalar:                            \
      break;                                              \
  }                                                       \
  return false

#else

template <class... Unused>
bool without_vectors(const Unused&...) {
  return false;
}
#define LOCKSTEP_BY_INSTRUCTIONS(FUNCTION, ...) return without_vectors(by, __VA_ARGS__)

#endif

}  // namespace lockstep::detail::vectorized
