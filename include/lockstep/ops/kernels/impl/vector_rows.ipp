// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/ops/kernels/vector_lanes.hpp>
#include <lockstep/ops/kernels/vector_math.hpp>
#include <lockstep/ops/kernels/vector_rows.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace lockstep::detail::vectorized {

#if defined(LOCKSTEP_LIBMVEC)

// The coefficients of P and Q in
//   exp(r) = 1 + r + r² · P(r)                 for |r| ≤ ½ ln 2, from Cephes' expf
//   Φ(−a) = exp(−a²/2) · Q(1 / (1 + 0.3 · a))  for 0 ≤ a ≤ 14.5, a minimax fit
inline constexpr float kExpPolynomial[] = {1.9875691500e-4F, 1.3981999507e-3F, 8.3334519073e-3F,
                                           4.1665795894e-2F, 1.6666665459e-1F, 5.0000001201e-1F};
inline constexpr float kTailPolynomial[] = {
    0.038407403975725174F, -0.16930752992630005F, 0.22895191609859467F,
    -0.07683984190225601F, 0.14276540279388428F,  0.09458580613136292F,
    0.12194527685642242F,  0.11948420852422714F,  7.372505933744833e-06F};

// A rest that is no whole vector, with zeros behind it.
struct FilledUp {
  float lanes[kLeastRow]{};
  FilledUp(const float* from, std::size_t count) { std::copy_n(from, count, lanes); }
};

#define LOCKSTEP_EACH <lockstep/ops/kernels/impl/vector_rows.inc>
#include <lockstep/ops/kernels/impl/for_each_instructions.inc>
#endif

LOCKSTEP_INLINE bool softmax(const float* in, float* out, std::size_t rows, std::size_t count,
                             Instructions by) {
  if (count < kLeastRow) return false;
  LOCKSTEP_BY_INSTRUCTIONS(softmax<false>, in, out, rows, count);
}

LOCKSTEP_INLINE bool log_softmax(const float* in, float* out, std::size_t rows, std::size_t count,
                                 Instructions by) {
  if (count < kLeastRow) return false;
  LOCKSTEP_BY_INSTRUCTIONS(softmax<true>, in, out, rows, count);
}

LOCKSTEP_INLINE bool softmax_grad(const float* grad, const float* y, float* out, std::size_t rows,
                                  std::size_t count, Instructions by) {
  if (count < kLeastRow) return false;
  LOCKSTEP_BY_INSTRUCTIONS(softmax_grad<false>, grad, y, out, rows, count);
}

LOCKSTEP_INLINE bool log_softmax_grad(const float* grad, const float* y, float* out,
                                      std::size_t rows, std::size_t count, Instructions by) {
  if (count < kLeastRow) return false;
  LOCKSTEP_BY_INSTRUCTIONS(softmax_grad<true>, grad, y, out, rows, count);
}

LOCKSTEP_INLINE bool exponentials(const float* x, float* out, std::size_t count, float& greatest,
                                  double& sum, Instructions by) {
  if (count < kLeastRow) return false;
  LOCKSTEP_BY_INSTRUCTIONS(exponentials, x, out, count, greatest, sum);
}

inline bool sigmoid_by_vectors(const float* x, float* out, std::size_t n, Instructions by) {
  LOCKSTEP_BY_INSTRUCTIONS(sigmoid, x, out, n);
}
LOCKSTEP_INLINE void sigmoid(const float* x, float* out, std::size_t n, Instructions by) {
  if (sigmoid_by_vectors(x, out, n, by)) return;
  for (std::size_t i = 0; i < n; ++i) {
    const float e = std::exp(-std::abs(x[i]));
    out[i] = (x[i] < 0 ? e : 1) / (1 + e);
  }
}

LOCKSTEP_INLINE bool gelu(const float* x, float* out, std::size_t n, Instructions by) {
  LOCKSTEP_BY_INSTRUCTIONS(gelu, x, out, n);
}

LOCKSTEP_INLINE bool gelu_grad(const float* grad, const float* x, float* out, std::size_t n,
                               Instructions by) {
  LOCKSTEP_BY_INSTRUCTIONS(gelu_grad, grad, x, out, n);
}

LOCKSTEP_INLINE bool column_sums(const float* in, float* out, std::size_t rows, std::size_t count,
                                 Instructions by) {
  if (count < kLeastRow) return false;
  LOCKSTEP_BY_INSTRUCTIONS(column_sums, in, out, rows, count);
}

LOCKSTEP_INLINE bool exp_minus(float* x, std::size_t n, float shift, Instructions by) {
  LOCKSTEP_BY_INSTRUCTIONS(exp_minus, x, n, shift);
}

}  // namespace lockstep::detail::vectorized
