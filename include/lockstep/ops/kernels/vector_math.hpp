// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <cstddef>
#include <cstdint>

// LOCKSTEP_LIBMVEC stands for a glibc that has the vector functions. (glibc says which it is in
// every header of the standard library.)
#if defined(__x86_64__) && defined(__LP64__) && defined(__GLIBC__) && \
    !defined(LOCKSTEP_NO_VECTOR_MATH)
#if __GLIBC__ > 2 || __GLIBC_MINOR__ >= 35
#define LOCKSTEP_LIBMVEC
#endif
#endif

// Transcendental functions of many numbers at a time, for the kernels of host devices: by libmvec,
// which is part of glibc on x86-64 and is linked with libm, in the widest vectors that the machine
// has, whatever the program is compiled for. Without a glibc of 2.35 or newer, or if
// LOCKSTEP_NO_VECTOR_MATH is defined (in all files of a program or in none), <cmath> computes one
// number after the other.
//
// A result is within 4 units in the last place of the correctly rounded one, in f32 and in f64; a
// square root is that one.
// Infinities, NaN, zeros and subnormal numbers give what <cmath> gives. The result depends on the
// number and the machine alone: not on its place among the others, nor on how many there are.
namespace lockstep::detail::vectorized {

inline constexpr double kSqrtHalf = 0.70710678118654752440;

// How to compute, narrow vectors to wide ones; a machine that has one has those before.
enum class Instructions : std::uint8_t { scalar, sse2, avx2, avx512 };

// The last that this machine and this program have.
Instructions best_instructions();

// Each is that function of `n` numbers; `out` may be `in`, and overlaps it in no other way.
void exp(const float* in, float* out, std::size_t n, Instructions by = best_instructions());
void exp(const double* in, double* out, std::size_t n, Instructions by = best_instructions());
void log(const float* in, float* out, std::size_t n, Instructions by = best_instructions());
void log(const double* in, double* out, std::size_t n, Instructions by = best_instructions());
void log1p(const float* in, float* out, std::size_t n, Instructions by = best_instructions());
void log1p(const double* in, double* out, std::size_t n, Instructions by = best_instructions());
void tanh(const float* in, float* out, std::size_t n, Instructions by = best_instructions());
void tanh(const double* in, double* out, std::size_t n, Instructions by = best_instructions());
void sqrt(const float* in, float* out, std::size_t n, Instructions by = best_instructions());
void sqrt(const double* in, double* out, std::size_t n, Instructions by = best_instructions());
// 1 / (1 + exp(−x)); that of f32 is in vector_rows.hpp
void sigmoid(const double* in, double* out, std::size_t n, Instructions by = best_instructions());
// erf(x · √½), of which the normal distribution function is made. With vectors f32 does not come
// here: it has gelu in vector_rows.hpp.
void normal_erf(const float* in, float* out, std::size_t n);
void normal_erf(const double* in, double* out, std::size_t n,
                Instructions by = best_instructions());

}  // namespace lockstep::detail::vectorized

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/kernels/impl/vector_math.ipp>
#endif
