// SPDX-License-Identifier: Apache-2.0
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/ops/kernels/tiled_gemm.hpp>
#include <lockstep/ops/kernels/tiles.hpp>
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

enum class Way : std::uint8_t { by_blas, at_once, repeated };
enum class Adds : std::uint8_t { nothing, bias, before };

// Two products with the same b.
Floats products(const Sizes& s, bool trans_a, bool trans_b, Adds adds, Way way) {
  const Stream stream = current_stream(Device("cpu:0"));
  const std::int64_t lda = (trans_a ? s.m : s.k) + 1;
  const std::int64_t ldb = (trans_b ? s.k : s.n) + 3;
  const Floats b = numbers(ldb * (trans_b ? s.n : s.k), 1);
  const Floats bias = numbers(s.n, 5);
  Floats c = numbers(s.m * (s.n + 2), 3);
  Gemm<float> gemm{.a = {},
                   .b = view(b),
                   .bias = adds == Adds::bias ? view(bias) : View<const float>{},
                   .c = view(c),
                   .m = s.m,
                   .n = s.n,
                   .k = s.k,
                   .lda = lda,
                   .ldb = ldb,
                   .ldc = s.n + 2};
  gemm.trans_a = trans_a;
  gemm.trans_b = trans_b;
  gemm.beta = adds == Adds::before ? 1 : 0;
  const detail::RepeatedGemm<float> multiply(stream, gemm);
  for (const int seed : {2, 8}) {
    const Floats a = numbers(lda * (trans_a ? s.k : s.m), seed);
    gemm.a = view(a);
    if (way == Way::by_blas) {
      gemm();
    } else if (way == Way::repeated) {
      multiply(gemm);
    } else {
      detail::launch_gemm(stream, gemm);
    }
  }
  return c;
}

// Where the product is a BLAS's anyway there is nothing to compare.
TEST(TiledGemm, GivesWhatABlasGives) {
  using detail::vectorized::Instructions;
  const Instructions best = detail::vectorized::best_instructions();
  if (best < Instructions::avx2 || host_math_threads() != 1) {
    GTEST_SKIP() << "needs AVX2 and a BLAS of one thread";
  }
  std::vector<Way> ways{Way::repeated};
  if (best >= Instructions::avx512) ways.push_back(Way::at_once);
  // Below one block of terms, columns and rows that are written out, and beyond, cut off or whole;
  // few rows of any other size are left to the BLAS.
  const Sizes all[] = {{64, 64, 64},   {33, 63, 260}, {100, 512, 6}, {102, 127, 21}, {32, 575, 15},
                       {13, 575, 258}, {13, 64, 5},   {11, 64, 5},   {19, 30, 7}};
  for (const Sizes& s : all) {
    for (const bool trans_a : {false, true}) {
      for (const bool trans_b : {false, true}) {
        for (const Adds adds : {Adds::nothing, Adds::bias, Adds::before}) {
          const Floats expected = products(s, trans_a, trans_b, adds, Way::by_blas);
          for (const Way way : ways) {
            EXPECT_EQ(products(s, trans_a, trans_b, adds, way), expected)
                << s.m << " × " << s.n << " × " << s.k << (trans_a ? ", trans_a" : "")
                << (trans_b ? ", trans_b" : "") << (way == Way::repeated ? ", repeated" : "");
          }
        }
      }
    }
  }
}

// Devices that share the rows of a batch compute what one computes.
TEST(TiledGemm, GivesARowTheSameBitsWhateverRowsAreBesideIt) {
  constexpr std::int64_t rows = 70;
  constexpr std::int64_t columns = 64;
  constexpr std::int64_t terms = 300;
  const Stream stream = current_stream(Device("cpu:0"));
  Floats a = numbers(rows * terms, 1);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] /= static_cast<float>(3 + i % 7);
  const Floats b = numbers(terms * columns, 2);
  const auto gemm_of = [&](std::int64_t from, std::int64_t count, Floats& c) {
    return Gemm<float>{.a = {a.data() + from * terms, a.size()},
                       .b = view(b),
                       .bias = {},
                       .c = view(c),
                       .m = count,
                       .n = columns,
                       .k = terms,
                       .lda = terms,
                       .ldb = columns,
                       .ldc = columns};
  };
  Floats whole(static_cast<std::size_t>(rows * columns));
  if (TiledGemm::work_size(gemm_of(0, rows, whole), TiledGemm::Part::panels) == 0) {
    GTEST_SKIP() << "needs AVX2 and a BLAS of one thread: another BLAS does not promise it";
  }
  const auto product = [&](std::int64_t from, std::int64_t count) {
    Floats c(static_cast<std::size_t>(count * columns));
    const Gemm<float> gemm = gemm_of(from, count, c);
    detail::RepeatedGemm<float>(stream, gemm)(gemm);
    const Floats repeated = c;
    if (TiledGemm::work_size(gemm, TiledGemm::Part::all) > 0) detail::launch_gemm(stream, gemm);
    EXPECT_EQ(c, repeated);
    return c;
  };
  const Floats all = product(0, rows);
  Floats parts = product(0, 33);
  const Floats rest = product(33, rows - 33);
  parts.insert(parts.end(), rest.begin(), rest.end());
  EXPECT_EQ(parts, all);
}

TEST(TiledGemm, IsForTilesOfWhichLittleIsWasted) {
  using detail::vectorized::Instructions;
  const Instructions best = detail::vectorized::best_instructions();
  const bool has = best >= Instructions::avx512;
  using Part = TiledGemm::Part;
  const auto fits = [](const Sizes& s, float alpha = 1, float beta = 0, Part part = Part::all) {
    Gemm<float> gemm{};
    gemm.m = s.m;
    gemm.n = s.n;
    gemm.k = s.k;
    gemm.alpha = alpha;
    gemm.beta = beta;
    return TiledGemm::work_size(gemm, part) > 0;
  };
  EXPECT_EQ(fits({64, 512, 128}), has);
  EXPECT_EQ(fits({12, 63, 128}, 1, 1), has);
  EXPECT_EQ(fits({12, 64, 128}, 1, 0, Part::panels), best >= Instructions::avx2);
  EXPECT_FALSE(fits({11, 64, 7}));
  EXPECT_FALSE(fits({16, 70, 7}));
  EXPECT_FALSE(fits({64, 512, 128}, 2));
  EXPECT_FALSE(fits({64, 512, 128}, 1, 2));
  const HostMathThreadsGuard two(2);
  EXPECT_EQ(fits({64, 512, 128}), has && host_math_threads() == 1);
}

}  // namespace tiled_gemm_test
}  // namespace lockstep
