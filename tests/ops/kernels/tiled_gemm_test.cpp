// SPDX-License-Identifier: Apache-2.0
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/ops/kernels/tiled_gemm.hpp>
#include <lockstep/ops/kernels/vector_math.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {
namespace tiled_gemm_test {

using detail::Gemm;
using detail::TiledGemm;
using Floats = std::vector<float>;

// Whole numbers so small that their sums are exact.
Floats numbers(std::int64_t count, int seed) {
  Floats all;
  for (int i = 0; i < count; ++i) all.push_back(static_cast<float>((i * 37 + seed) % 13 - 6));
  return all;
}

View<const float> view(const Floats& of) { return {of.data(), of.size()}; }
View<float> view(Floats& of) { return {of.data(), of.size()}; }

struct Sizes {
  std::int64_t m, n, k;
};

// Two products with the same b, the second added to what is there unless there is a bias.
Floats products(const Sizes& s, bool trans_b, bool with_bias, bool by_blas) {
  const Stream stream = current_stream(Device("cpu:0"));
  const std::int64_t ldb = (trans_b ? s.k : s.n) + 3;
  const Floats b = numbers(ldb * (trans_b ? s.n : s.k), 1);
  const Floats bias = numbers(s.n, 5);
  Floats c = numbers(s.m * (s.n + 2), 3);
  Gemm<float> gemm{.a = {},
                   .b = view(b),
                   .bias = with_bias ? view(bias) : View<const float>{},
                   .c = view(c),
                   .m = s.m,
                   .n = s.n,
                   .k = s.k,
                   .lda = s.k + 1,
                   .ldb = ldb,
                   .ldc = s.n + 2};
  gemm.trans_b = trans_b;
  const detail::RepeatedGemm<float> multiply(stream, gemm);
  for (const int seed : {2, 8}) {
    const Floats a = numbers(s.m * (s.k + 1), seed);
    gemm.a = view(a);
    if (by_blas) {
      gemm();
    } else {
      multiply(gemm);
    }
    gemm.beta = 1;
  }
  return c;
}

TEST(TiledGemm, GivesWhatABlasGives) {
  const Sizes all[] = {{8, 32, 5},    {14, 16, 9}, {64, 96, 40},
                       {12, 48, 128}, {9, 32, 7},  {8, 30, 7}};
  for (const Sizes& s : all) {
    for (const bool trans_b : {false, true}) {
      for (const bool with_bias : {false, true}) {
        EXPECT_EQ(products(s, trans_b, with_bias, false), products(s, trans_b, with_bias, true))
            << s.m << " × " << s.n << " × " << s.k;
      }
    }
  }
}

TEST(TiledGemm, IsForWholeTiles) {
  const bool has =
      detail::vectorized::best_instructions() >= detail::vectorized::Instructions::avx2;
  const auto fits = [](const Sizes& s) {
    Gemm<float> gemm{};
    gemm.m = s.m;
    gemm.n = s.n;
    gemm.k = s.k;
    return TiledGemm::work_size(gemm) > 0;
  };
  EXPECT_EQ(fits({64, 512, 128}), has);
  EXPECT_EQ(fits({14, 16, 128}), has);
  EXPECT_FALSE(fits({9, 32, 7}));
  EXPECT_FALSE(fits({8, 30, 7}));
  const HostMathThreadsGuard two(2);
  EXPECT_EQ(fits({64, 512, 128}), has && host_math_threads() == 1);
}

}  // namespace tiled_gemm_test
}  // namespace lockstep
