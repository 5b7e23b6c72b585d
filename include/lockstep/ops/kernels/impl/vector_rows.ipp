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

// As LOCKSTEP_VECTOR_LANES, the functions of one set of instructions.
#define LOCKSTEP_VECTOR_ROWS(BY, INSTRUCTIONS)                                                     \
  namespace BY {                                                                                   \
  template <std::size_t n>                                                                         \
  [[gnu::target(INSTRUCTIONS)]] inline V polynomial(V x, const float (&coefficients)[n]) {         \
    V y = V{} + coefficients[0];                                                                   \
    for (std::size_t i = 1; i < n; ++i) y = y * x + coefficients[i];                               \
    return y;                                                                                      \
  }                                                                                                \
                                                                                                   \
  /* Of x ≤ 0; the power of 2 is too large by 2^64 at first, so that it is not subnormal. */     \
  [[gnu::target(INSTRUCTIONS)]] inline V exp_below_0(V x) {                                        \
    x = greater(V{} - 104.0F, x);                                                                  \
    const S k = __builtin_convertvector(x * 1.44269504F - 0.5F, S);                                \
    const V n = __builtin_convertvector(k, V);                                                     \
    const V r = (x - n * 0.693359375F) - n * -2.12194440e-4F;                                      \
    const V y = polynomial(r, kExpPolynomial) * (r * r) + r + 1.0F;                                \
    const U bits = (reinterpret_cast<U>(k) + (127U + 64U)) << 23;                                  \
    return y * reinterpret_cast<V>(bits) * 0x1p-64F;                                               \
  }                                                                                                \
                                                                                                   \
  [[gnu::target(INSTRUCTIONS)]] inline float greatest_of(const float* x, std::size_t count) {      \
    V most = read(x);                                                                              \
    for (std::size_t i = kLanes; i < count; i += kLanes) {                                         \
      most = greater(read(x + std::min(i, count - kLanes)), most);                                 \
    }                                                                                              \
    return greatest(most);                                                                         \
  }                                                                                                \
                                                                                                   \
  /* In double, since the logarithm of what is nearly 1 has few digits. */                         \
  template <bool writes>                                                                           \
  [[gnu::target(INSTRUCTIONS)]] inline double sum_of_exponentials(const float* x, float* out,      \
                                                                  float most, std::size_t count) { \
    float room[kLanes];                                                                            \
    D low{};                                                                                       \
    D high{};                                                                                      \
    for (std::size_t i = 0; i < count; i += kLanes) {                                              \
      const std::size_t at = std::min(i, count - kLanes);                                          \
      const V e = exp_below_0(read(x + at) - most);                                                \
      const float* from = room;                                                                    \
      if constexpr (writes) {                                                                      \
        write(out + at, e);                                                                        \
        from = out + at;                                                                           \
      }                                                                                            \
      if (!writes || at != i) {                                                                    \
        write(room, rest_of(e, i - at, 0));                                                        \
        from = room;                                                                               \
      }                                                                                            \
      low += widened(from);                                                                        \
      high += widened(from + kLanes / 2);                                                          \
    }                                                                                              \
    return total(low + high);                                                                      \
  }                                                                                                \
                                                                                                   \
  inline void exponentials(const float* x, float* out, std::size_t count, float& most,             \
                           double& sum) {                                                          \
    most = greatest_of(x, count);                                                                  \
    sum = sum_of_exponentials<true>(x, out, most, count);                                          \
  }                                                                                                \
                                                                                                   \
  template <bool logarithm>                                                                        \
  [[gnu::target(INSTRUCTIONS)]] inline void softmax(const float* in, float* out, std::size_t rows, \
                                                    std::size_t count) {                           \
    for (; rows > 0; --rows, in += count, out += count) {                                          \
      const float most = greatest_of(in, count);                                                   \
      const double sum = sum_of_exponentials<!logarithm>(in, out, most, count);                    \
      const float of_all = static_cast<float>(logarithm ? std::log(sum) : 1 / sum);                \
      for (std::size_t i = 0; i < count; i += kLanes) {                                            \
        const std::size_t at = std::min(i, count - kLanes);                                        \
        if constexpr (logarithm) {                                                                 \
          write(out + at, (read(in + at) - most) - of_all);                                        \
        } else {                                                                                   \
          V factors = V{} + of_all;                                                                \
          if (at != i) factors = rest_of(factors, i - at, 1);                                      \
          write(out + at, read(out + at) * factors);                                               \
        }                                                                                          \
      }                                                                                            \
    }                                                                                              \
  }                                                                                                \
                                                                                                   \
  template <bool logarithm>                                                                        \
  [[gnu::target(INSTRUCTIONS)]] inline void softmax_grad(const float* grad, const float* y,        \
                                                         float* out, std::size_t rows,             \
                                                         std::size_t count) {                      \
    for (; rows > 0; --rows, grad += count, y += count, out += count) {                            \
      D sum{};                                                                                     \
      for (std::size_t first = 0; first < count; first += kChunk) {                                \
        V part{};                                                                                  \
        for (std::size_t i = first; i < std::min(first + kChunk, count); i += kLanes) {            \
          const std::size_t at = std::min(i, count - kLanes);                                      \
          V term = read(grad + at);                                                                \
          if constexpr (!logarithm) term *= read(y + at);                                          \
          if (at != i) term = rest_of(term, i - at, 0);                                            \
          part += term;                                                                            \
        }                                                                                          \
        sum += wide_sum(part);                                                                     \
      }                                                                                            \
      const float all = static_cast<float>(total(sum));                                            \
      for (std::size_t i = 0; i < count; i += kLanes) {                                            \
        const std::size_t at = std::min(i, count - kLanes);                                        \
        const V g = read(grad + at);                                                               \
        const V x = read(y + at);                                                                  \
        if constexpr (logarithm) {                                                                 \
          write(out + at, g - exp_below_0(x) * all);                                               \
        } else {                                                                                   \
          write(out + at, x * (g - all));                                                          \
        }                                                                                          \
      }                                                                                            \
    }                                                                                              \
  }                                                                                                \
                                                                                                   \
  /* Φ(x) and, without its constant factor, φ(x). */                                             \
  struct Normal {                                                                                  \
    V distribution;                                                                                \
    V density;                                                                                     \
  };                                                                                               \
  [[gnu::target(INSTRUCTIONS)]] inline Normal normal(V x) {                                        \
    const V density = exp_below_0(x * x * -0.5F);                                                  \
    const V t = 1.0F / (greater(x, -x) * 0.3F + 1.0F);                                             \
    const V tail = density * polynomial(t, kTailPolynomial);                                       \
    return {x > 0.0F ? 1.0F - tail : tail, density};                                               \
  }                                                                                                \
                                                                                                   \
  [[gnu::target(INSTRUCTIONS)]] inline V gelu_of(V x) { return x * normal(x).distribution; }       \
  [[gnu::target(INSTRUCTIONS)]] inline V gelu_grad_of(V grad, V x) {                               \
    const Normal of = normal(x);                                                                   \
    return grad * (of.distribution + x * of.density * 0.398942280F);                               \
  }                                                                                                \
  /* The exponential is that of −|x|, which cannot overflow. */                                  \
  [[gnu::target(INSTRUCTIONS)]] inline V sigmoid_of(V x) {                                         \
    const V e = exp_below_0(x < 0.0F ? x : -x);                                                    \
    return (x < 0.0F ? e : V{} + 1.0F) / (e + 1.0F);                                               \
  }                                                                                                \
                                                                                                   \
  /* Of whole vectors. Not inlined, so that a vector is computed in one way wherever it lies. */   \
  template <auto function, class... In>                                                            \
  [[gnu::target(INSTRUCTIONS), gnu::noinline]] void of_vectors(float* out, std::size_t n,          \
                                                               const In*... in) {                  \
    for (std::size_t i = 0; i < n; i += kLanes) write(out + i, function(read(in + i)...));         \
  }                                                                                                \
  template <auto function, class... In>                                                            \
  void of_elements(float* out, std::size_t n, const In*... in) {                                   \
    const std::size_t rest = n % kLanes;                                                           \
    of_vectors<function>(out, n - rest, in...);                                                    \
    if (rest == 0) return;                                                                         \
    float room[kLanes];                                                                            \
    of_vectors<function>(room, kLanes, FilledUp(in + n - rest, rest).lanes...);                    \
    std::copy_n(room, rest, out + n - rest);                                                       \
  }                                                                                                \
  inline void gelu(const float* x, float* out, std::size_t n) { of_elements<gelu_of>(out, n, x); } \
  inline void sigmoid(const float* x, float* out, std::size_t n) {                                 \
    of_elements<sigmoid_of>(out, n, x);                                                            \
  }                                                                                                \
  inline void gelu_grad(const float* grad, const float* x, float* out, std::size_t n) {            \
    of_elements<gelu_grad_of>(out, n, grad, x);                                                    \
  }                                                                                                \
                                                                                                   \
  [[gnu::target(INSTRUCTIONS)]] inline void column_sums(const float* in, float* out,               \
                                                        std::size_t rows, std::size_t count) {     \
    const std::size_t columns = std::min(kColumnsOfSums, count);                                   \
    for (std::size_t i = 0; i < count; i += columns) {                                             \
      const std::size_t first = std::min(i, count - columns);                                      \
      double sums[kColumnsOfSums]{};                                                               \
      for (std::size_t row = 0; row < rows; row += kRowsTogether) {                                \
        const std::size_t end = std::min(row + kRowsTogether, rows);                               \
        for (std::size_t c = 0; c < columns; c += kLanes) {                                        \
          const std::size_t at = std::min(c, columns - kLanes);                                    \
          V part{};                                                                                \
          for (std::size_t r = row; r < end; ++r) part += read(in + r * count + first + at);       \
          if (at != c) part = rest_of(part, c - at, 0);                                            \
          add_wide(sums + at, part);                                                               \
        }                                                                                          \
      }                                                                                            \
      for (std::size_t c = 0; c < columns; ++c) out[first + c] = static_cast<float>(sums[c]);      \
    }                                                                                              \
  }                                                                                                \
                                                                                                   \
  /* The last vector is read before what it lies on is written. */                                 \
  [[gnu::target(INSTRUCTIONS)]] inline void exp_minus(float* x, std::size_t n, float shift) {      \
    float room[kLanes]{};                                                                          \
    const std::size_t whole = n / kLanes * kLanes;                                                 \
    float* const end = whole > 0 ? x + n - kLanes : room;                                          \
    if (whole == 0) std::copy_n(x, n, room);                                                       \
    const V last = exp_below_0(read(end) - shift);                                                 \
    for (std::size_t i = 0; i < whole; i += kLanes)                                                \
      write(x + i, exp_below_0(read(x + i) - shift));                                              \
    write(end, last);                                                                              \
    if (whole == 0) std::copy_n(room, n, x);                                                       \
  }                                                                                                \
  }
LOCKSTEP_VECTOR_ROWS(rows_by_sse2, "sse2")
LOCKSTEP_VECTOR_ROWS(rows_by_avx2, "avx2,fma")
LOCKSTEP_VECTOR_ROWS(rows_by_avx512, "avx512f,avx512dq")
#undef LOCKSTEP_VECTOR_ROWS
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
