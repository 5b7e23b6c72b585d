// SPDX-License-Identifier: Apache-2.0
//
// That tiny products are right is tested with the BLAS's.
#include <lockstep/backend/host/tiny_gemm.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace lockstep::detail {
namespace tiny_gemm_test {

std::vector<float> thirds(std::int64_t count) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(i % 17 - 8) / 3);
  return values;
}

// a · b of m × k and k × n.
std::vector<float> product(const float* a, const std::vector<float>& b, std::int64_t m,
                           std::int64_t n, std::int64_t k, bool trans_a = false) {
  std::vector<float> c(static_cast<std::size_t>(m * n));
  tiny_gemm<float>(trans_a, false, m, n, k, 1, a, trans_a ? m : k, b.data(), n, 0, {}, c.data(), n);
  return c;
}

TEST(TinyGemm, ARowIsTheSameWhateverOtherRowsThereAre) {
  constexpr std::int64_t m = 9, n = 3, k = 7;
  const std::vector<float> a = thirds(m * k), b = thirds(k * n);
  const std::vector<float> whole = product(a.data(), b, m, n, k);
  for (std::int64_t first = 0; first < m; ++first) {
    for (std::int64_t rows = 1; first + rows <= m; ++rows) {
      const std::vector<float> part = product(a.data() + first * k, b, rows, n, k);
      EXPECT_EQ(part,
                std::vector<float>(whole.begin() + first * n, whole.begin() + (first + rows) * n));
    }
  }
}

TEST(TinyGemm, ItIsTheSameInAnyLayout) {
  constexpr std::int64_t m = 5, n = 6, k = 4;
  const std::vector<float> a = thirds(m * k), b = thirds(k * n);
  std::vector<float> transposed(a.size());
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t p = 0; p < k; ++p) {
      transposed[static_cast<std::size_t>(p * m + i)] = a[static_cast<std::size_t>(i * k + p)];
    }
  }
  EXPECT_EQ(product(transposed.data(), b, m, n, k, true), product(a.data(), b, m, n, k));
}

// Compilers fuse products and sums in some places of a block and not in others, if they may.
TEST(TinyGemm, AnElementIsTheSameAsAlone) {
  for (const auto& [m, n, k] : std::vector<std::array<std::int64_t, 3>>{
           {11, 1, 19}, {1, 11, 19}, {5, 6, 4}, {9, 3, 7}, {2, 10, 16}, {4, 2, 20}}) {
    const std::vector<float> a = thirds(m * k), b = thirds(k * n);
    for (const bool trans_a : {false, true}) {
      for (const bool trans_b : {false, true}) {
        for (const float beta : {0.0F, 1.0F, 0.7F}) {
          const std::int64_t lda = trans_a ? m : k, ldb = trans_b ? k : n;
          std::vector<float> c = thirds(m * n);
          const std::vector<float> before = c;
          tiny_gemm<float>(trans_a, trans_b, m, n, k, 1, a.data(), lda, b.data(), ldb, beta,
                           {c.data(), n, 1}, c.data(), n);
          for (std::int64_t i = 0; i < m * n; ++i) {
            const std::int64_t row = i / n, column = i % n;
            float alone = before[static_cast<std::size_t>(i)];
            tiny_gemm<float>(trans_a, trans_b, 1, 1, k, 1, a.data() + (trans_a ? row : row * lda),
                             lda, b.data() + (trans_b ? column * ldb : column), ldb, beta,
                             {&alone, 1, 1}, &alone, 1);
            EXPECT_EQ(c[static_cast<std::size_t>(i)], alone)
                << m << " x " << n << " x " << k << ", element " << i;
          }
        }
      }
    }
  }
}

TEST(TinyGemm, NoSizeIsSoLargeThatItWouldCountAsTiny) {
  constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max() / 2;
  EXPECT_FALSE(is_tiny_gemm(huge, 4, 1));
  EXPECT_FALSE(is_tiny_gemm(1, huge, huge));
  EXPECT_FALSE(is_tiny_gemm(1 << 22, 1 << 21, 1 << 21));
  EXPECT_TRUE(is_tiny_gemm(15, 2, 5));
}

}  // namespace tiny_gemm_test
}  // namespace lockstep::detail
