// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace lockstep::detail {

// Whether a product is so small that a BLAS would spend most of its time on overhead: its buffer's
// locks, its choice of a kernel, its packing.
inline bool is_tiny_gemm(std::int64_t m, std::int64_t n, std::int64_t k) {
  constexpr std::int64_t kMost = 320;  // multiplications; each size is compared first
  return m <= kMost && n <= kMost && k <= kMost && m * n * k <= kMost;
}

// a · b + c, rounded once if the machine can fuse it, otherwise twice. (The plain expression might
// be fused for some elements only.)
template <class T>
T multiply_add(T a, T b, T c) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA) || defined(__FP_FAST_FMAF)
  if constexpr (std::is_same_v<T, float>) {
    return __builtin_fmaf(a, b, c);
  } else {
    return __builtin_fma(a, b, c);
  }
#else
  return a * b + c;
#endif
}

// What is added to a product: the element at row i and column j is data[i * row + j * column]. Null
// `data` adds nothing.
template <class T>
struct Addend {
  const T* data = nullptr;
  std::int64_t row = 0;
  std::int64_t column = 0;
};

// c = alpha · op(a) · op(b) + beta · d for a product with is_tiny_gemm; d may be c. Each element is
// summed in the order of k and has the same bits whatever the shape, the layout and its place.
template <class T>
[[gnu::noinline]] void tiny_gemm(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n,
                                 std::int64_t k, T alpha, const T* a, std::int64_t lda, const T* b,
                                 std::int64_t ldb, T beta, Addend<T> d, T* c, std::int64_t ldc) {
  // Computes a product with fewer rows than columns as its transpose, in blocks whose sums do not
  // wait for each other. A block that extends beyond the matrix computes the last row or column
  // again.
  constexpr std::int64_t kRows = 4;
  constexpr std::int64_t kColumns = 2;
  std::int64_t a_row = trans_a ? 1 : lda;
  std::int64_t a_column = trans_a ? lda : 1;
  std::int64_t b_row = trans_b ? 1 : ldb;
  std::int64_t b_column = trans_b ? ldb : 1;
  std::int64_t c_row = ldc;
  std::int64_t c_column = 1;
  if (m < n) {
    std::swap(a, b);
    std::swap(m, n);
    std::swap(a_row, b_column);
    std::swap(a_column, b_row);
    std::swap(c_row, c_column);
    std::swap(d.row, d.column);
  }
  for (std::int64_t i = 0; i < m; i += kRows) {
    const T* const x0 = a + i * a_row;
    const T* const x1 = a + std::min(i + 1, m - 1) * a_row;
    const T* const x2 = a + std::min(i + 2, m - 1) * a_row;
    const T* const x3 = a + std::min(i + 3, m - 1) * a_row;
    for (std::int64_t j = 0; j < n; j += kColumns) {
      const T* const y0 = b + j * b_column;
      const T* const y1 = b + std::min(j + 1, n - 1) * b_column;
      T sums[kRows][kColumns] = {};
      for (std::int64_t p = 0; p < k; ++p) {
        const T x[kRows] = {x0[p * a_column], x1[p * a_column], x2[p * a_column], x3[p * a_column]};
        const T y[kColumns] = {y0[p * b_row], y1[p * b_row]};
        for (std::int64_t r = 0; r < kRows; ++r) {
          for (std::int64_t s = 0; s < kColumns; ++s)
            sums[r][s] = multiply_add(x[r], y[s], sums[r][s]);
        }
      }
      for (std::int64_t r = 0; r < kRows && i + r < m; ++r) {
        for (std::int64_t s = 0; s < kColumns && j + s < n; ++s) {
          T& out = c[(i + r) * c_row + (j + s) * c_column];
          const T product = sums[r][s];
          out = d.data == nullptr
                    ? alpha * product
                    : multiply_add(alpha, product,
                                   beta * d.data[(i + r) * d.row + (j + s) * d.column]);
        }
      }
    }
  }
}

}  // namespace lockstep::detail
