// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/ops/kernels/blocks.hpp>
#include <lockstep/ops/kernels/vector_math.hpp>

#include <cmath>
#include <cstddef>
#include <cstring>

namespace lockstep::detail::vectorized {

// Of one number, for machines without the vector functions.
template <class T>
T one_normal_erf(T x) {
  return std::erf(x * static_cast<T>(kSqrtHalf));
}

#if defined(LOCKSTEP_LIBMVEC)

using Floats4 [[gnu::vector_size(16)]] = float;
using Floats8 [[gnu::vector_size(32)]] = float;
using Floats16 [[gnu::vector_size(64)]] = float;
using Doubles2 [[gnu::vector_size(16)]] = double;
using Doubles4 [[gnu::vector_size(32)]] = double;
using Doubles8 [[gnu::vector_size(64)]] = double;

#define LOCKSTEP_EACH <lockstep/ops/kernels/impl/vector_math.inc>
#include <lockstep/ops/kernels/impl/for_each_instructions.inc>

// The names are those of the x86-64 vector function ABI: b, d and e are the instructions.
#define LOCKSTEP_VECTOR_FUNCTION(NAME)                                         \
  Floats4 NAME##_of(Floats4) __asm__("_ZGVbN4v_" #NAME "f");                   \
  Floats8 NAME##_of(Floats8) __asm__("_ZGVdN8v_" #NAME "f");                   \
  Floats16 NAME##_of(Floats16) __asm__("_ZGVeN16v_" #NAME "f");                \
  Doubles2 NAME##_of(Doubles2) __asm__("_ZGVbN2v_" #NAME);                     \
  Doubles4 NAME##_of(Doubles4) __asm__("_ZGVdN4v_" #NAME);                     \
  Doubles8 NAME##_of(Doubles8) __asm__("_ZGVeN8v_" #NAME);                     \
  LOCKSTEP_VECTOR_OVERLOAD(NAME, std::NAME, float, Floats4, Floats8, Floats16) \
  LOCKSTEP_VECTOR_OVERLOAD(NAME, std::NAME, double, Doubles2, Doubles4, Doubles8)
#define LOCKSTEP_VECTOR_OVERLOAD(NAME, ONE, T, V2, V4, V8)                         \
  LOCKSTEP_INLINE void NAME(const T* in, T* out, std::size_t n, Instructions by) { \
    switch (by) {                                                                  \
      case Instructions::avx512:                                                   \
        return by_avx512::map_vectors<V8, NAME##_of>(in, out, n);                  \
      case Instructions::avx2:                                                     \
        return by_avx2::map_vectors<V4, NAME##_of>(in, out, n);                    \
      case Instructions::sse2:                                                     \
        return by_sse2::map_vectors<V2, NAME##_of>(in, out, n);                    \
      case Instructions::scalar:                                                   \
        for (std::size_t i = 0; i < n; ++i) out[i] = ONE(in[i]);                   \
    }                                                                              \
  }

LOCKSTEP_INLINE Instructions best_instructions() {
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) {
    return Instructions::avx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Instructions::avx2;
  return Instructions::sse2;
}

// An instruction each, which a compiler does not make of a loop of std::sqrt: that may set errno.
#define LOCKSTEP_VECTOR_ROOT(INSTRUCTIONS, V, NAME)      \
  [[gnu::target(INSTRUCTIONS)]] inline V sqrt_of(V x) {  \
    __asm__(NAME " {%1, %0|%0, %1}" : "=x"(x) : "x"(x)); \
    return x;                                            \
  }
LOCKSTEP_VECTOR_ROOT("sse2", Floats4, "sqrtps")
LOCKSTEP_VECTOR_ROOT("sse2", Doubles2, "sqrtpd")
LOCKSTEP_VECTOR_ROOT("avx2,fma", Floats8, "vsqrtps")
LOCKSTEP_VECTOR_ROOT("avx2,fma", Doubles4, "vsqrtpd")
LOCKSTEP_VECTOR_ROOT("avx512f,avx512dq", Floats16, "vsqrtps")
LOCKSTEP_VECTOR_ROOT("avx512f,avx512dq", Doubles8, "vsqrtpd")
#undef LOCKSTEP_VECTOR_ROOT

LOCKSTEP_VECTOR_OVERLOAD(sqrt, std::sqrt, float, Floats4, Floats8, Floats16)
LOCKSTEP_VECTOR_OVERLOAD(sqrt, std::sqrt, double, Doubles2, Doubles4, Doubles8)

// Scaled in the register: a vector that is read just after narrower ones were written there has to
// wait for them. erf_of is called by a pointer, as in the loops, since it is compiled for fewer
// instructions.
#define LOCKSTEP_NORMAL_ERF(INSTRUCTIONS, V, ERF)             \
  V erf_of(V) __asm__(ERF);                                   \
  [[gnu::target(INSTRUCTIONS)]] inline V normal_erf_of(V x) { \
    V (*const function)(V) = erf_of;                          \
    return function(x * kSqrtHalf);                           \
  }
LOCKSTEP_NORMAL_ERF("sse2", Doubles2, "_ZGVbN2v_erf")
LOCKSTEP_NORMAL_ERF("avx2,fma", Doubles4, "_ZGVdN4v_erf")
LOCKSTEP_NORMAL_ERF("avx512f,avx512dq", Doubles8, "_ZGVeN8v_erf")
#undef LOCKSTEP_NORMAL_ERF

LOCKSTEP_VECTOR_OVERLOAD(normal_erf, one_normal_erf, double, Doubles2, Doubles4, Doubles8)

#else

#define LOCKSTEP_VECTOR_FUNCTION(NAME)             \
  LOCKSTEP_VECTOR_OVERLOAD(NAME, std::NAME, float) \
  LOCKSTEP_VECTOR_OVERLOAD(NAME, std::NAME, double)
#define LOCKSTEP_VECTOR_OVERLOAD(NAME, ONE, T)                                  \
  LOCKSTEP_INLINE void NAME(const T* in, T* out, std::size_t n, Instructions) { \
    for (std::size_t i = 0; i < n; ++i) out[i] = ONE(in[i]);                    \
  }

LOCKSTEP_INLINE Instructions best_instructions() { return Instructions::scalar; }

LOCKSTEP_VECTOR_FUNCTION(sqrt)
LOCKSTEP_VECTOR_OVERLOAD(normal_erf, one_normal_erf, double)

#endif

LOCKSTEP_VECTOR_FUNCTION(exp)
LOCKSTEP_VECTOR_FUNCTION(log)
LOCKSTEP_VECTOR_FUNCTION(log1p)
LOCKSTEP_VECTOR_FUNCTION(tanh)
#undef LOCKSTEP_VECTOR_OVERLOAD
#undef LOCKSTEP_VECTOR_FUNCTION

LOCKSTEP_INLINE void normal_erf(const float* in, float* out, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] = one_normal_erf(in[i]);
}

// The exponential is that of −|x|, which cannot overflow: far below 0 the result is subnormal.
struct SigmoidBlock {
  Instructions by;
  void block(std::size_t count, double* y, const double* x) const {
    double e[kBlockSize];
    map_block([](double v) { return -std::abs(v); }, e, x);
    exp(e, e, count, by);
    map_block([](double v, double exp) { return (v < 0 ? exp : 1) / (1 + exp); }, y, x, e);
  }
};

LOCKSTEP_INLINE void sigmoid(const double* in, double* out, std::size_t n, Instructions by) {
  in_blocks(n, out, SigmoidBlock{by}, in);
}

}  // namespace lockstep::detail::vectorized
