// SPDX-License-Identifier: Apache-2.0
#include <lockstep/ops/kernels/tiles.hpp>
#include <lockstep/ops/kernels/vector_math.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {
namespace tiles_test {

using detail::tiles::Kernel;
using detail::tiles::Segment;
using detail::tiles::Sum;
using detail::tiles::Terms;
using detail::vectorized::best_instructions;
using detail::vectorized::Instructions;

// Whole numbers so small that their sums are exact.
std::vector<float> numbers(std::size_t count, int seed) {
  std::vector<float> all;
  for (std::size_t i = 0; i < count; ++i) {
    all.push_back(static_cast<float>((static_cast<int>(i) * 37 + seed) % 13 - 6));
  }
  return all;
}

// A tile whose segments begin `apart` after each other, for the terms of two runs, the second of
// which lies before the first; `count` of its segments are asked for.
void expect_sums(const Kernel& kernel, std::int64_t count, bool with_initial) {
  constexpr std::int64_t length = 5;
  constexpr std::int64_t step = 11;
  constexpr std::int64_t apart = 3;
  const std::array<Terms, 2> terms{{{70, 0}, {2, length * kernel.width}}};
  const std::vector<float> rows = numbers(200, 1);
  const std::vector<float> panel = numbers(static_cast<std::size_t>(2 * length * kernel.width), 5);
  const std::vector<float> initial = numbers(static_cast<std::size_t>(kernel.width), 2);
  const std::int64_t out_step = kernel.width + 3;
  const std::int64_t segment = kernel.rows * out_step;
  const auto size = static_cast<std::size_t>(segment * (count + 1));
  const std::vector<float> before = numbers(size, 9);
  std::vector<float> out = before;

  Segment segments[Kernel::kMostSegments];
  for (std::int64_t s = 0; s < count; ++s) {
    segments[s] = {rows.data() + s * apart, out.data() + s * segment};
  }
  kernel({terms.data(), 2, length, step, panel.data(), with_initial ? initial.data() : nullptr,
          out_step},
         segments, count);

  std::vector<float> expected = before;
  for (std::int64_t s = 0; s < count; ++s) {
    for (std::int64_t r = 0; r < kernel.rows; ++r) {
      for (std::int64_t c = 0; c < kernel.width; ++c) {
        float& sum = expected[static_cast<std::size_t>(s * segment + r * out_step + c)];
        if (with_initial) sum = initial[static_cast<std::size_t>(c)];
        for (const Terms& run : terms) {
          for (std::int64_t i = 0; i < length; ++i) {
            sum += rows[static_cast<std::size_t>(run.rows + s * apart + i * step + r)] *
                   panel[static_cast<std::size_t>(run.panel + i * kernel.width + c)];
          }
        }
      }
    }
  }
  EXPECT_EQ(out, expected) << kernel.rows << " rows, " << kernel.width << " columns, " << count
                           << " segments";
}

TEST(Tiles, AreSumsOfProductsAndWriteNothingElse) {
  if (best_instructions() < Instructions::avx2) GTEST_SKIP() << "needs AVX2, for tiles";
  for (const Instructions by : {Instructions::avx2, Instructions::avx512}) {
    if (by > best_instructions()) continue;
    for (const std::int64_t run : {7, 4}) {
      for (const std::int64_t columns : {16, 32}) {
        const Kernel kernel = Kernel::fit(run, columns, by);
        ASSERT_NE(kernel.run, nullptr);
        EXPECT_EQ(kernel.rows, run);
        EXPECT_EQ(columns % kernel.width, 0);
        for (const bool with_initial : {true, false}) {
          for (std::int64_t count = 1; count <= kernel.segments; ++count) {
            expect_sums(kernel, count, with_initial);
          }
        }
      }
    }
  }
}

TEST(Tiles, AreThoseThatWasteLeast) {
  EXPECT_EQ(Kernel::fit(14, 16, Instructions::sse2).run, nullptr);
  if (best_instructions() < Instructions::avx2) GTEST_SKIP() << "needs AVX2, for tiles";
  EXPECT_EQ(Kernel::fit(14, 16).rows, 7);
  EXPECT_EQ(Kernel::fit(24, 16).rows, 4);
  EXPECT_EQ(Kernel::fit(3, 16).run, nullptr);
  EXPECT_EQ(Kernel::fit(14, 1).run, nullptr);
  const Kernel kernel = Kernel::fit(10, 16);  // the last segment overlaps the one before
  EXPECT_EQ(kernel.parts(10), 3);
  EXPECT_EQ(kernel.begin(1, 10), 4);
  EXPECT_EQ(kernel.begin(2, 10), 6);
}

TEST(Tiles, TransposeMatricesOfAnySize) {
  if (best_instructions() < Instructions::avx2) GTEST_SKIP() << "needs AVX2, for tiles";
  for (const std::int64_t rows : {1, 8, 13, 49}) {
    for (const std::int64_t columns : {3, 8, 21}) {
      const std::int64_t in_ld = columns + 2;
      const std::int64_t out_ld = rows + 1;
      const std::vector<float> in = numbers(static_cast<std::size_t>(rows * in_ld), 3);
      std::vector<float> out(static_cast<std::size_t>(columns * out_ld), 99);
      std::vector<float> expected = out;
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t c = 0; c < columns; ++c) {
          expected[static_cast<std::size_t>(c * out_ld + r)] =
              in[static_cast<std::size_t>(r * in_ld + c)];
        }
      }
      detail::tiles::transpose(in.data(), in_ld, rows, columns, out.data(), out_ld);
      EXPECT_EQ(out, expected) << rows << " × " << columns;
    }
  }
}

}  // namespace tiles_test
}  // namespace lockstep
