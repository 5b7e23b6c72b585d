// SPDX-License-Identifier: Apache-2.0
#include <lockstep/ops/expand.hpp>
#include <lockstep/ops/reduce.hpp>

#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/random.hpp>

#include "support/expect_error.hpp"
#include "support/gradcheck.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace lockstep {
namespace reduce_test {

using testing::gradcheck;
using testing::gradgradcheck;
using testing::throws;
using Integers = std::vector<std::int64_t>;

constexpr TensorOptions kLeaf{.dtype = Dtype::f64, .device = {}, .requires_grad = true};

TEST(Reduce, SumsOverTheDimensionsListed) {
  const Tensor x = arange(6).reshape({2, 3});
  EXPECT_EQ(sum(x).item<std::int64_t>(), 15);
  EXPECT_EQ(sum(x).sizes(), Shape{});
  EXPECT_EQ(sum(x, {0}).to_vector<std::int64_t>(), (Integers{3, 5, 7}));
  EXPECT_EQ(sum(x, {-1}).to_vector<std::int64_t>(), (Integers{3, 12}));
  EXPECT_EQ(sum(x, {1}, true).sizes(), (Shape{2, 1}));
  EXPECT_EQ(sum(x, {0, 1}, true).sizes(), (Shape{1, 1}));
  EXPECT_EQ(sum(x, {}, true).sizes(), (Shape{1, 1}));
  EXPECT_EQ(x.sum().item<std::int64_t>(), 15);
  EXPECT_EQ(sum(scalar_tensor(2.0F)).item<float>(), 2);
}

// Every set of dimensions of every order of four dimensions, against sums written out.
TEST(Reduce, SumsAnyDimensionsOfAnyLayout) {
  const Shape sizes = {2, 3, 10, 5};
  const Tensor base = arange(numel(sizes)).reshape(sizes);
  for (const Shape& order : {Shape{0, 1, 2, 3}, Shape{3, 2, 1, 0}, Shape{1, 3, 0, 2}}) {
    const Tensor x = permute(base, order);
    const Integers values = x.to_vector<std::int64_t>();
    for (unsigned set = 1; set < 16; ++set) {
      Shape dims;
      Shape kept;
      for (unsigned d = 0; d < 4; ++d) {
        if ((set >> d & 1U) != 0) {
          dims.push_back(d);
        } else {
          kept.push_back(x.sizes()[d]);
        }
      }
      Integers expected(static_cast<std::size_t>(numel(kept)), 0);
      for (std::size_t i = 0; i < values.size(); ++i) {
        std::size_t rest = i;
        std::size_t place = 0;
        std::size_t step = 1;
        for (unsigned d = 4; d-- > 0;) {
          const auto size = static_cast<std::size_t>(x.sizes()[d]);
          if ((set >> d & 1U) == 0) {
            place += rest % size * step;
            step *= size;
          }
          rest /= size;
        }
        expected[place] += values[i];
      }
      const Tensor result = sum(x, dims);
      EXPECT_EQ(result.sizes(), kept);
      EXPECT_EQ(result.to_vector<std::int64_t>(), expected) << dims << " of " << x.sizes();
      EXPECT_EQ(sum(x.to(Dtype::f32), dims).to(Dtype::i64).to_vector<std::int64_t>(), expected);
    }
  }
}

// Rows and columns of as many numbers as are added side by side, of more and of fewer.
TEST(Reduce, SumsOfRowsAndColumnsOfAnyNumber) {
  const Integers counts = {1, 3, 4, 5, 8, 63, 64, 65, 131, 150};
  for (const std::int64_t rows : counts) {
    for (const std::int64_t columns : counts) {
      Integers values;
      Integers of_row(static_cast<std::size_t>(rows));
      Integers of_column(static_cast<std::size_t>(columns));
      for (std::size_t r = 0; r < of_row.size(); ++r) {
        for (std::size_t c = 0; c < of_column.size(); ++c) {
          const auto value = static_cast<std::int64_t>(values.size() * 37 % 101);
          values.push_back(value);
          of_row[r] += value;
          of_column[c] += value;
        }
      }
      const Tensor x = from_values(values, {rows, columns});
      EXPECT_EQ(sum(x, {1}).to_vector<std::int64_t>(), of_row) << x.sizes();
      EXPECT_EQ(sum(x, {0}).to_vector<std::int64_t>(), of_column) << x.sizes();
      const Tensor f64 = x.to(Dtype::f64);
      EXPECT_EQ(sum(f64, {1}).to(Dtype::i64).to_vector<std::int64_t>(), of_row) << x.sizes();
      EXPECT_EQ(sum(f64, {0}).to(Dtype::i64).to_vector<std::int64_t>(), of_column) << x.sizes();
    }
  }
}

// A GPU adds up so many parts of a sum in another way than few.
TEST(Reduce, SumsOfMillions) {
  std::vector<float> values(2'000'003);
  double expected = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i % 7) - 2;
    expected += static_cast<double>(values[i]);
  }
  const Tensor x = from_values(values, {static_cast<std::int64_t>(values.size())});
  EXPECT_EQ(sum(x).item<float>(), static_cast<float>(expected));
}

TEST(Reduce, SumsOfF32AreRoundedOnce) {
  const Tensor many = full({1 << 20}, 0.1F);
  EXPECT_EQ(sum(many).item<float>(), static_cast<float>((1 << 20) * static_cast<double>(0.1F)));
  EXPECT_EQ(sum(full({1 << 20, 1}, 0.1F), {0}).item<float>(), sum(many).item<float>());
  EXPECT_EQ(sum(tensor({1e8F, 1.0F, -1e8F})).item<float>(), 1);
}

TEST(Reduce, IntegersAndBooleansBecomeI64) {
  EXPECT_EQ(sum(tensor<std::int32_t>({2147483647, 1})).item<std::int64_t>(), 2147483648);
  EXPECT_EQ(sum(ones({300}, {.dtype = Dtype::boolean})).item<std::int64_t>(), 300);
  EXPECT_EQ(sum(full({300}, 255, {.dtype = Dtype::u8})).dtype(), Dtype::i64);
  EXPECT_EQ(sum(full({300}, 255, {.dtype = Dtype::u8})).item<std::int64_t>(), 76500);
}

TEST(Reduce, HalfPrecisionIsSummedWiderAndRoundedOnce) {
  const Tensor x = tensor({2048.0F, 1.0F, 1.0F, -2048.0F}).to(Dtype::f16);
  EXPECT_EQ(sum(x).dtype(), Dtype::f16);
  EXPECT_EQ(sum(x).item<float>(), 2);  // 2048 + 1 would be 2048 in f16
}

TEST(Reduce, OfNothing) {
  EXPECT_EQ(sum(zeros({0})).item<float>(), 0);
  EXPECT_EQ(sum(zeros({0, 2}), {0}).to_vector<float>(), (std::vector<float>{0, 0}));
  EXPECT_EQ(sum(zeros({2, 0}), {1}).to_vector<float>(), (std::vector<float>{0, 0}));
  EXPECT_EQ(sum(zeros({0, 2}), {1}).numel(), 0);
  EXPECT_TRUE(std::isnan(mean(zeros({0})).item<float>()));
}

TEST(Reduce, MeansDivideByTheCount) {
  const Tensor x = arange(6, {.dtype = Dtype::f64}).reshape({2, 3});
  EXPECT_EQ(mean(x).item(), 2.5);
  EXPECT_EQ(x.mean().item(), 2.5);
  EXPECT_EQ(mean(x, {0}).to_vector<double>(), (std::vector<double>{1.5, 2.5, 3.5}));
  EXPECT_EQ(mean(x, {1}, true).sizes(), (Shape{2, 1}));
  EXPECT_THROW((void)mean(arange(3)), DtypeError);
}

TEST(Reduce, VariancesDivideByTheCountLessTheCorrection) {
  const Tensor x = tensor<double>({1, 2, 4, 9, 5, 3}).reshape({2, 3});
  EXPECT_EQ(var(x).item(), 8);
  EXPECT_EQ(std(x).item(), std::sqrt(8.0));
  EXPECT_DOUBLE_EQ(var(x, {}, 0).item(), 40.0 / 6);
  EXPECT_EQ(var(x, {0}).to_vector<double>(), (std::vector<double>{32, 4.5, 0.5}));
  EXPECT_EQ(var(x, {0}, 0).to_vector<double>(), (std::vector<double>{16, 2.25, 0.25}));
  EXPECT_EQ(std(x, {0}, 0).to_vector<double>(), (std::vector<double>{4, 1.5, 0.5}));
  EXPECT_EQ(var(x, {-1}, 1, true).sizes(), (Shape{2, 1}));
  EXPECT_EQ(std(x, {1}, 1, true).sizes(), (Shape{2, 1}));
  EXPECT_TRUE(std::isnan(var(x, {0, 1}, 6).item()) || std::isinf(var(x, {0, 1}, 6).item()));
  EXPECT_TRUE(std::isnan(var(tensor({3.0F})).item<float>()));  // 0 / 0
  EXPECT_THROW((void)var(arange(3)), DtypeError);
  EXPECT_THROW((void)std(x, {2}), IndexError);
  EXPECT_THROW((void)var(Tensor()), ValueError);
}

TEST(Reduce, AStandardDeviationNeedsNoVarianceThatTheDtypeHolds) {
  const double deviation = std::sqrt(5.0 / 3);
  for (const float factor : {1e20F, 1e-22F, 1e-25F}) {
    const Tensor x = (tensor({1.0F, 2.0F, 3.0F, 4.0F}) * factor).detach().requires_grad_();
    const Tensor y = std(x);
    EXPECT_FLOAT_EQ(y.to_vector<float>()[0], static_cast<float>(deviation * factor));
    y.backward();
    EXPECT_NEAR(x.grad().to_vector<float>()[3], 0.5 / deviation, 1e-6);
  }
  const Tensor whole = arange(3);
  EXPECT_TRUE(throws<DtypeError>([&] { var(whole); }, "var: expected a floating-point dtype"));
  EXPECT_TRUE(throws<DtypeError>([&] { std(whole); }, "std: expected a floating-point dtype"));
  EXPECT_TRUE(throws<ValueError>([&] { std(Tensor()); }, "std: "));
}

TEST(Reduce, SumsOfNothingAreZeroForAnySizes) {
  constexpr std::int64_t kLarge = std::int64_t{1} << 40;
  EXPECT_EQ(zeros({kLarge, kLarge, 0}).sum().item(), 0);
  // Of no elements, however often: the time does not depend on the sizes.
  constexpr std::int64_t kMany = std::int64_t{1} << 62;
  const Tensor x = zeros({kMany, 0, 4}, {.requires_grad = true});
  EXPECT_EQ(x.sum().item(), 0);
  EXPECT_EQ(x.sum({0, 1}).to_vector<float>(), (std::vector<float>{0, 0, 0, 0}));
  x.transpose(1, 2).sum().backward();
  EXPECT_EQ(x.grad().sizes(), x.sizes());
}

TEST(Reduce, VariancesOfHalfPrecisionAreRoundedOnce) {
  const Tensor x = tensor({256.0F, 257.0F, 259.0F, 264.0F}).to(Dtype::f16);
  EXPECT_EQ(var(x).dtype(), Dtype::f16);
  EXPECT_EQ(var(x).item<float>(), static_cast<float>(Half(38.0F / 3)));
  EXPECT_EQ(std(x).item<float>(), static_cast<float>(Half(std::sqrt(38.0F / 3))));
}

TEST(Reduce, ArgmaxIsTheFirstOfEqualsAndANanWins) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = tensor({1.0F, 5.0F, 5.0F, 7.0F, nan, 9.0F}).reshape({2, 3});
  EXPECT_EQ(argmax(x, 1).to_vector<std::int64_t>(), (Integers{1, 1}));
  EXPECT_EQ(argmax(x, 0).to_vector<std::int64_t>(), (Integers{1, 1, 1}));
  EXPECT_EQ(argmax(x.t(), -1).to_vector<std::int64_t>(), (Integers{1, 1, 1}));
  EXPECT_EQ(argmax(x, 1, true).sizes(), (Shape{2, 1}));
  EXPECT_EQ(argmax(scalar_tensor(1.0F), 0).item<std::int64_t>(), 0);
  EXPECT_THROW((void)argmax(zeros({2, 0}), 1), IndexError);
  EXPECT_THROW((void)argmax(zeros({2, 2}), 2), IndexError);
  EXPECT_FALSE(argmax(ones({2}, kLeaf), 0).requires_grad());
}

// Rows of several blocks, and of a part of one.
TEST(Reduce, ArgmaxOfALongRowIsTheFirstOfTheGreatest) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const std::int64_t count : {63, 64, 65, 128, 200}) {
    for (std::int64_t at = 0; at < count; ++at) {
      std::vector<float> row(static_cast<std::size_t>(count), -1);
      const auto last = static_cast<std::size_t>(count - 1);
      const auto place = static_cast<std::size_t>(at);
      const auto found = [&] { return argmax(tensor(row), 0).item<std::int64_t>(); };
      row[place] = 2;
      EXPECT_EQ(found(), at) << count;
      row[last] = 2;
      EXPECT_EQ(found(), at) << count;
      row[last] = kNan;
      EXPECT_EQ(found(), count - 1);
      row[place] = kNan;
      EXPECT_EQ(found(), at) << count;
    }
  }
}

// More columns than are taken together, twice.
TEST(Reduce, ArgmaxOfManyColumnsIsThatOfEach) {
  constexpr std::int64_t kOuter = 2, kCount = 5, kColumns = 70;
  std::vector<float> values;
  for (int i = 0; i < kOuter * kCount * kColumns; ++i) {
    values.push_back(i % 97 == 5 ? std::numeric_limits<float>::quiet_NaN()
                                 : static_cast<float>(i * 7919 % 11));
  }
  const Tensor x = from_values(values, {kOuter, kCount, kColumns});
  const Integers found = argmax(x, 1).to_vector<std::int64_t>();
  const Integers in_rows = argmax(x.transpose(1, 2), 2).to_vector<std::int64_t>();
  EXPECT_EQ(found, in_rows);
  EXPECT_EQ(found.size(), kOuter * kColumns);
}

TEST(Reduce, ArgmaxOfNoColumnsTakesNoTimeForAnySizes) {
  constexpr std::int64_t kLarge = std::int64_t{1} << 62;
  EXPECT_EQ(argmax(zeros({kLarge, 2, 0}), 1).sizes(), (Shape{kLarge, 0}));
}

TEST(Reduce, DimensionsAreChecked) {
  EXPECT_THROW((void)sum(zeros({2, 3}), {2}), IndexError);
  EXPECT_THROW((void)sum(zeros({2, 3}), {1, -1}), ValueError);
}

TEST(Reduce, GradientsAgreeWithFiniteDifferences) {
  const auto all = [](const Tensor& x) {
    const Tensor y = x * x;
    return std::vector<Tensor>{sum(y),
                               sum(y, {1}),
                               sum(y, {0, 2}, true),
                               mean(y),
                               mean(y, {0}, true),
                               mean(y, {-1}),
                               sum(y, {1, 2}),
                               mean(y, {0, 1, 2}, true),
                               var(y),
                               var(y, {1}),
                               var(y, {0, 2}, 0, true),
                               std(y, {1})};
  };
  const std::vector<Tensor> x = {rand({2, 3, 2}, kLeaf, 1, 2)};
  EXPECT_TRUE(gradcheck(all, x));
  EXPECT_TRUE(gradgradcheck(all, x));
}

TEST(Reduce, OneGradientForManyElementsIsAccumulatedForEach) {
  const Tensor x = ones({2, 2}, kLeaf);
  sum(x).backward();
  sum(x).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{2, 2, 2, 2}));
}

TEST(Reduce, SumToTheShapeOfAnOperand) {
  const Tensor x = ones({2, 3, 4});
  EXPECT_TRUE(detail::sum_to(x, {2, 3, 4}).is_same(x));
  EXPECT_EQ(detail::sum_to(x, {3, 1}).to_vector<float>(), (std::vector<float>{8, 8, 8}));
  EXPECT_EQ(detail::sum_to(x, {}).item<float>(), 24);
  EXPECT_EQ(detail::sum_to(x, {1, 1, 4}).sizes(), (Shape{1, 1, 4}));
  EXPECT_EQ(detail::sum_to(zeros({0, 4}), {1, 4}).to_vector<float>(), std::vector<float>(4, 0.0F));
}

TEST(Reduce, TheDeviationOfEqualElementsHasNoSlope) {
  const Tensor x = from_values(std::vector<double>{2, 2, 1, 3}, {2, 2}).requires_grad_();
  EXPECT_EQ(std(x, {1}).to_vector<double>(), (std::vector<double>{0, std::sqrt(2.0)}));
  sum(std(x, {1})).backward();
  const double slope = 1 / std::sqrt(2.0);
  const std::vector<double> grads = x.grad().to_vector<double>();
  EXPECT_EQ(grads[0], 0);
  EXPECT_EQ(grads[1], 0);
  EXPECT_NEAR(grads[2], -slope, 1e-12);
  EXPECT_NEAR(grads[3], slope, 1e-12);
}

}  // namespace reduce_test
}  // namespace lockstep
