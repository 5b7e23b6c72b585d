// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>
#include <lockstep/ops/kernels/vector_math.hpp>

#include <cstddef>

// Whole operations on f32 in host memory, in the widest vectors that the machine has, whatever the
// program is compiled for: what lies between two transcendental functions stays in registers, and
// those are polynomials in place of calls.
//
// Each that returns whether it has done its work does nothing without vectors
// (ops/kernels/vector_math.hpp says when), and those of rows nothing with fewer than 16 elements a
// row: then the caller computes in its own way. Sums are taken in an order that the length of a row
// and the instructions decide: those of exponentials in double, others in f32 over no more than 16
// vectors and in double beyond. Outputs overlap no input, except where it says so.
namespace lockstep::detail::vectorized {

// Softmax of rows of `count` elements, and its logarithm.
bool softmax(const float* in, float* out, std::size_t rows, std::size_t count,
             Instructions by = best_instructions());
bool log_softmax(const float* in, float* out, std::size_t rows, std::size_t count,
                 Instructions by = best_instructions());

// exp(x − greatest) of a row, into `out`, and the sum of these. May be one row of several: the
// order is as in softmax.
bool exponentials(const float* x, float* out, std::size_t count, float& greatest, double& sum,
                  Instructions by = best_instructions());

// Their gradients, from the results y: y · (grad − Σ grad · y), and grad − exp(y) · Σ grad.
bool softmax_grad(const float* grad, const float* y, float* out, std::size_t rows,
                  std::size_t count, Instructions by = best_instructions());
bool log_softmax_grad(const float* grad, const float* y, float* out, std::size_t rows,
                      std::size_t count, Instructions by = best_instructions());

// 1 / (1 + exp(−x)) of n elements, with or without vectors, as vector_math.hpp has it for f64;
// `out` may be `x`.
void sigmoid(const float* x, float* out, std::size_t n, Instructions by = best_instructions());

// x · Φ(x) of n elements, and the gradient times Φ(x) + x · φ(x); `out` may be an input. An
// element gives the same bits in any place. The first has a relative error of at most
// (8 + x²) · 2^-24, since it takes exp(−x²/2) of a rounded square.
bool gelu(const float* x, float* out, std::size_t n, Instructions by = best_instructions());
bool gelu_grad(const float* grad, const float* x, float* out, std::size_t n,
               Instructions by = best_instructions());

// out[c] = the sum of in[row, c] over the rows: of eight rows in f32, of all in double.
bool column_sums(const float* in, float* out, std::size_t rows, std::size_t count,
                 Instructions by = best_instructions());

// x[i] = exp(x[i] − shift), where no x is greater than the shift.
bool exp_minus(float* x, std::size_t n, float shift, Instructions by = best_instructions());

}  // namespace lockstep::detail::vectorized

#if defined(LOCKSTEP_DEFINITIONS)
#include <lockstep/ops/kernels/impl/vector_rows.ipp>
#endif
