// SPDX-License-Identifier: Apache-2.0
#include <lockstep/tensor/random.hpp>

#include <lockstep/error.hpp>
#include <lockstep/ops/to.hpp>

#include "support/expect_error.hpp"
#include "support/sanitizers.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <limits>
#include <map>
#include <numbers>
#include <thread>
#include <vector>

namespace lockstep {
namespace random_test {

using testing::throws;

TEST(Random, TheSeedDecidesTheNumbers) {
  Generator a(42);
  Generator b(42);
  EXPECT_EQ(randn({100}, {}, a).to_vector<float>(), randn({100}, {}, b).to_vector<float>());
  manual_seed(7);
  const std::vector<float> first = rand({5}).to_vector<float>();
  manual_seed(7);
  EXPECT_EQ(rand({5}, {.device = "cpu:1"}).to_vector<float>(), first);
  EXPECT_NE(rand({5}).to_vector<float>(), first);
}

// The sequence is part of what a seed promises: the same on every machine and compiler.
TEST(Random, TheSequenceIsThatOfTheStandardsEngine) {
  Generator generator(5489);
  for (int i = 1; i < 10000; ++i) (void)generator.bits();
  EXPECT_EQ(generator.bits(), 9981545732273789042U);
}

TEST(Random, NumbersAreDistributedAsSaid) {
  Generator generator(1);
  const std::vector<double> uniform =
      rand({20000}, {.dtype = Dtype::f64}, -1, 3, generator).to_vector<double>();
  double sum = 0;
  for (const double value : uniform) {
    EXPECT_GE(value, -1);
    EXPECT_LT(value, 3);
    sum += value;
  }
  EXPECT_NEAR(sum / 20000, 1, 0.05);
  sum = 0;
  double squares = 0;
  for (const double value : randn({20000}, {.dtype = Dtype::f64}, generator).to_vector<double>()) {
    EXPECT_TRUE(std::isfinite(value));
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(sum / 20000, 0, 0.05);
  EXPECT_NEAR(squares / 20000, 1, 0.05);
}

TEST(Random, NormalNumbersAreSharedOutAsTheirDistributionSays) {
  constexpr int kNumbers = 4'000'000;
  constexpr double kFarOut = 3.6541528853610088;
  const auto share_below = [](double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; };
  // How far counts are from the expected ones; with n of them on average n, ± √2n.
  const auto chi_squared = [](const std::vector<double>& counts, double expected) {
    double sum = 0;
    for (const double count : counts) sum += (count - expected) * (count - expected) / expected;
    return sum;
  };
  std::vector<double> all(100);
  std::vector<double> far_out(4);  // beyond both ends, the outermost first
  Generator generator(7);
  const Tensor drawn = randn({kNumbers}, {.dtype = Dtype::f64}, generator);
  for (const double x : drawn.to_vector<double>()) {
    ++all[std::min<std::size_t>(static_cast<std::size_t>(share_below(x) * 100), 99)];
    const double outside = share_below(-std::abs(x)) / share_below(-kFarOut);
    if (outside < 1) ++far_out[static_cast<std::size_t>(outside * 4)];
  }
  EXPECT_LT(chi_squared(all, kNumbers / 100.0), 170);
  EXPECT_LT(chi_squared(far_out, kNumbers * 2 * share_below(-kFarOut) / 4), 18);
}

TEST(Random, TheUpperBoundIsNotReachedByRoundingEither) {
  Generator generator(2);
  const auto expect_below = [&](Dtype dtype, double low, double high) {
    const Tensor drawn = rand({20000}, {.dtype = dtype}, low, high, generator).to(Dtype::f64);
    bool at_bound = false;
    for (const double value : drawn.to_vector<double>()) {
      EXPECT_GE(value, low);
      at_bound = at_bound || value >= high;
    }
    EXPECT_FALSE(at_bound) << dtype << " from " << low << " to " << high;
  };
  expect_below(Dtype::bf16, 0, 1);
  expect_below(Dtype::f16, 0, 1);
  expect_below(Dtype::f32, 1e6, 1000001);
}

TEST(Random, IntegersAreUniformAsWell) {
  const TensorOptions options{.dtype = Dtype::i64, .device = "cpu:0"};
  std::map<std::int64_t, int> counts;
  for (const std::int64_t x : rand({6000}, options, -3, 3).to_vector<std::int64_t>()) ++counts[x];
  ASSERT_EQ(counts.size(), 6U);
  EXPECT_EQ(counts.begin()->first, -3);
  for (const auto& [x, count] : counts) EXPECT_NEAR(count, 1000, 150) << x;
  EXPECT_THROW((void)randn({2}, options), DtypeError);
  const auto drawn = [&](double low, double high) {
    return rand({100}, options, low, high).to_vector<std::int64_t>();
  };
  EXPECT_EQ(drawn(0x1p52, 0x1p52 + 1), std::vector(100, std::int64_t{1} << 52));
  counts.clear();
  for (const std::int64_t x : rand({6000}, options, 0.5, 3.5).to_vector<std::int64_t>()) {
    ++counts[x];
  }
  ASSERT_EQ(counts.size(), 3U);
  EXPECT_EQ(counts.begin()->first, 1);
  for (const auto& [x, count] : counts) EXPECT_NEAR(count, 2000, 250) << x;
  EXPECT_THROW((void)drawn(0.2, 0.8), ValueError);
  EXPECT_THROW((void)drawn(0.5, 0.5), ValueError);
  EXPECT_THROW((void)drawn(0.5, 1), ValueError);
}

// Eighths of the range, and the remainders by 8, are as likely.
TEST(Random, WideRangesAreDrawnFromWhole) {
  Generator generator(4);
  const auto drawn = [&](double low, double high) {
    const TensorOptions options{.dtype = Dtype::i64};
    return rand({4000}, options, low, high, generator).to_vector<std::int64_t>();
  };
  const auto counts = [](const std::vector<std::int64_t>& numbers, std::uint64_t from, int shift) {
    std::map<std::uint64_t, int> result;
    for (const std::int64_t x : numbers) {
      ++result[((static_cast<std::uint64_t>(x) - from) >> shift) % 8];
    }
    return result;
  };
  struct Range {
    double low, high;
    int log_of_width;
  };
  for (const auto& [low, high, log_of_width] :
       {Range{-0x1p63, 0x1p63, 64}, Range{0, 0x1p63, 63}, Range{-0x1p63, 0, 63},
        Range{-0x1p53, 0x1p53, 54}, Range{0x1p62, 0x1p62 + 0x1p32, 32}}) {
    const std::vector<std::int64_t> numbers = drawn(low, high);
    for (const std::int64_t x : numbers) {
      EXPECT_GE(x, static_cast<std::int64_t>(low));
      EXPECT_TRUE(high == 0x1p63 || x < static_cast<std::int64_t>(high)) << x;
    }
    const auto first = static_cast<std::uint64_t>(static_cast<std::int64_t>(low));
    for (const int shift : {0, log_of_width - 3}) {
      const std::map<std::uint64_t, int> found = counts(numbers, first, shift);
      EXPECT_EQ(found.size(), 8U) << low << " to " << high;
      for (const auto& [part, count] : found) EXPECT_NEAR(count, 500, 120) << part;
    }
  }
  // No power of two: a remainder would prefer the lower half.
  int low_half = 0;
  for (const std::int64_t x : drawn(-0x1p62, 0x1p63)) low_half += x < std::int64_t{1} << 61 ? 1 : 0;
  EXPECT_NEAR(low_half, 2000, 200);
  EXPECT_EQ(drawn(-0x1p63, -0x1p63), std::vector<std::int64_t>(4000, INT64_MIN));
}

TEST(Random, BoundsAreFiniteAndInOrder) {
  EXPECT_THROW((void)rand({2}, {}, 1, 0), ValueError);
  EXPECT_THROW((void)rand({2}, {}, 0, std::numeric_limits<double>::infinity()), ValueError);
  EXPECT_THROW((void)rand({2}, {.dtype = Dtype::f64}, -1e308, 1e308), ValueError);
  EXPECT_EQ(rand({2}, {}, 3, 3).to_vector<float>(), (std::vector<float>{3, 3}));
}

TEST(Random, TheDtypeReachesTheBounds) {
  const auto draw = [](Dtype dtype, double low, double high) {
    return rand({50}, {.dtype = dtype}, low, high).to(Dtype::f64).to_vector<double>();
  };
  EXPECT_THROW((void)draw(Dtype::i32, 0, 0x1p31 + 1), DtypeError);
  EXPECT_THROW((void)draw(Dtype::i64, -0x1p64, 0), DtypeError);
  EXPECT_THROW((void)draw(Dtype::i32, 0x1p31 - 0.5, 0x1p31), DtypeError);
  EXPECT_THROW((void)draw(Dtype::u8, -3, 3), DtypeError);
  EXPECT_THROW((void)draw(Dtype::u8, 0, 257), DtypeError);
  EXPECT_THROW((void)draw(Dtype::f32, 0, 1e300), DtypeError);
  EXPECT_THROW((void)draw(Dtype::f16, 0, 1e9), DtypeError);
  for (const double x : draw(Dtype::u8, 255, 256)) EXPECT_EQ(x, 255);
  for (const double x : draw(Dtype::i64, 0x1p62, 0x1p63)) EXPECT_GE(x, 0x1p62);
  for (const double x : draw(Dtype::i32, -0x1p31, 0x1p31)) EXPECT_LT(x, 0x1p31);
  for (const double x : draw(Dtype::f64, 0, 1e300)) EXPECT_GE(x, 0);
  EXPECT_NO_THROW((void)draw(Dtype::boolean, 0, 9));
}

TEST(Random, BelowReachesEveryNumberAndNoOther) {
  Generator generator(3);
  std::array<int, 7> counts{};
  for (int i = 0; i < 7000; ++i) ++counts.at(static_cast<std::size_t>(generator.below(7)));
  for (const int count : counts) EXPECT_NEAR(count, 1000, 200);
  EXPECT_EQ(generator.below(1), 0U);
  EXPECT_THROW((void)generator.below(0), ValueError);
}

TEST(Random, MoreNumbersThanThereIsMemoryForAreNamed) {
  if (testing::kAddressSanitizer)
    GTEST_SKIP() << "needs an allocator that refuses such a size, as ASan's does not";
  constexpr std::int64_t kMany = std::int64_t{1} << 58;
  EXPECT_TRUE(throws<Error>([] { (void)rand({kMany}, Dtype::u8); }, "out of memory on cpu",
                            "2305843009213693952 bytes"));
  EXPECT_TRUE(throws<Error>([] { (void)arange(kMany); }, "out of memory on cpu"));
}

// A number that is lost or comes twice changes their sum.
TEST(Random, ThreadsThatDrawFromOneGeneratorShareItsSequence) {
  constexpr int kThreads = 4;
  constexpr int kDraws = 100'000;  // by each
  Generator shared(6);
  Generator alone(6);
  std::atomic<std::uint64_t> drawn{0};
  {
    std::latch start(kThreads);
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        start.arrive_and_wait();
        std::uint64_t sum = 0;
        for (int draw = 0; draw < kDraws; ++draw) sum += shared.bits();
        drawn += sum;
      });
    }
  }
  std::uint64_t expected = 0;
  for (int draw = 0; draw < kThreads * kDraws; ++draw) expected += alone.bits();
  EXPECT_EQ(drawn, expected);
  EXPECT_EQ(shared.bits(), alone.bits());
}

}  // namespace random_test
}  // namespace lockstep
