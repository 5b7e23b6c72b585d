// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/pooling.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "support/gradcheck.hpp"
#include "support/varied.hpp"

namespace lockstep {
namespace pooling_test {

using testing::all_close;
using testing::expect_error;
using testing::gradcheck;
using testing::gradgradcheck;
using testing::varied;
using testing::varied_leaf;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Case {
  Shape x;
  Size2d kernel, stride;
  Size2d padding = 0;
};

std::vector<Case> cases() {
  return {
      {{2, 3, 4, 6}, 2, 2},  // side by side
      {{1, 2, 5, 7}, 2, 2},  // with a rest
      {{2, 2, 5, 5}, 3, 1},  // overlapping
      {{2, 2, 5, 6}, {2, 3}, {1, 2}},
      {{1, 2, 4, 4}, 3, 2, 1},
      {{1, 2, 6, 5}, {3, 2}, {2, 3}, {1, 0}},
      {{3, 4, 4}, 2, 3},  // no batch, windows apart
      {{1, 1, 3, 3}, 2, 2, 1},
  };
}

// Rows of as many windows as are taken at once, of more and of fewer, with a rest at either end.
std::vector<Case> wide_cases() {
  std::vector<Case> all;
  for (const std::int64_t width : {4, 5, 8, 9, 11, 16, 17, 19, 30, 37}) {
    for (const std::int64_t stride : {1, 2, 3}) {
      all.push_back({{2, 5, width}, {2, 3}, stride, {1, 1}});
      all.push_back({{1, 4, width}, {3, 2}, stride});
      all.push_back({{1, 2, width}, {1, 4}, {1, stride}, {0, 2}});
    }
  }
  return all;
}

// Multiples of 1/4 below 8, many of them equal, so that sums are exact in f32, too.
Tensor quarters(const Shape& shape) {
  std::vector<double> values(static_cast<std::size_t>(numel(shape)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<double>(i * 37 % 61 % 31) / 4;
  }
  return from_values(values, shape, Device("cpu:0"));
}

Tensor by_definition(const Case& c, const Tensor& x) {
  const std::int64_t height = x.size(-2);
  const std::int64_t width = x.size(-1);
  Shape shape = x.sizes();
  shape[shape.size() - 2] = (height + 2 * c.padding.height - c.kernel.height) / c.stride.height + 1;
  shape[shape.size() - 1] = (width + 2 * c.padding.width - c.kernel.width) / c.stride.width + 1;
  const std::vector<double> in = x.to_vector<double>();
  std::vector<double> out;
  for (std::int64_t p = 0; p < x.numel() / (height * width); ++p) {
    for (std::int64_t y = 0; y < shape[shape.size() - 2]; ++y) {
      for (std::int64_t z = 0; z < shape[shape.size() - 1]; ++z) {
        double best = -std::numeric_limits<double>::infinity();
        for (std::int64_t i = 0; i < c.kernel.height; ++i) {
          for (std::int64_t j = 0; j < c.kernel.width; ++j) {
            const std::int64_t row = y * c.stride.height + i - c.padding.height;
            const std::int64_t col = z * c.stride.width + j - c.padding.width;
            if (row < 0 || row >= height || col < 0 || col >= width) continue;
            best = std::fmax(best, in[static_cast<std::size_t>((p * height + row) * width + col)]);
          }
        }
        out.push_back(best);
      }
    }
  }
  return from_values(out, shape, x.device());
}

TEST(MaxPool2d, AgreesWithTheDefinition) {
  for (const Case& c : cases()) {
    const Tensor x = varied(c.x);
    const Tensor y = max_pool2d(x, c.kernel, c.stride, c.padding);
    const Tensor expected = by_definition(c, x);
    EXPECT_EQ(y.sizes(), expected.sizes()) << c.x;
    EXPECT_EQ(y.to_vector<double>(), expected.to_vector<double>()) << c.x;
  }
}

TEST(MaxPool2d, AgreesWithTheDefinitionInWideRows) {
  for (const Case& c : wide_cases()) {
    const Tensor x = quarters(c.x);
    const std::vector<double> expected = by_definition(c, x).to_vector<double>();
    for (const Dtype dtype : {Dtype::f64, Dtype::f32}) {
      const Tensor leaf = x.to(dtype).detach().requires_grad_();
      const Tensor y = max_pool2d(leaf, c.kernel, c.stride, c.padding);
      EXPECT_EQ(y.to(Dtype::f64).to_vector<double>(), expected) << c.x << dtype;
      // Each result's gradient goes to an element that has its value.
      y.backward(ones(y.sizes(), y.options()));
      EXPECT_EQ((leaf.grad() * leaf.detach()).sum().item(), y.detach().sum().item()) << c.x;
    }
  }
}

TEST(MaxPool2d, PutsWindowsSideBySideByDefault) {
  const Tensor x = varied({1, 2, 6, 6});
  EXPECT_EQ(max_pool2d(x, 3).to_vector<double>(), max_pool2d(x, 3, 3).to_vector<double>());
  EXPECT_EQ(max_pool2d(x, {2, 3}).sizes(), (Shape{1, 2, 3, 2}));
  EXPECT_EQ(max_pool2d(varied({0, 2, 4, 4}), 2).sizes(), (Shape{0, 2, 2, 2}));
}

TEST(MaxPool2d, HasFirstAndSecondDerivatives) {
  for (const Case& c : cases()) {
    const auto f = [&c](const Tensor& x) { return max_pool2d(x, c.kernel, c.stride, c.padding); };
    EXPECT_TRUE(gradcheck(f, {varied_leaf(c.x)})) << c.x;
    EXPECT_TRUE(gradgradcheck(f, {varied_leaf(c.x)})) << c.x;
  }
}

TEST(MaxPool2d, SendsTheGradientToTheFirstOfEqualElements) {
  for (const std::int64_t kernel : {2, 3}) {
    const Tensor x = ones({1, 1, kernel, kernel}, {.requires_grad = true});
    max_pool2d(x, kernel).backward(ones({1, 1, 1, 1}));
    std::vector<float> expected(static_cast<std::size_t>(kernel * kernel), 0);
    expected[0] = 1;
    EXPECT_EQ(x.grad().to_vector<float>(), expected);
  }
}

TEST(MaxPool2d, LetsANanWinWhereverItLies) {
  const Tensor x = from_values(std::vector<float>{kNan, 1, 2, kNan, 5, 6, 7, 8,  //
                                                  1, 2, 3, 4, kNan, 6, 7, kNan},
                               {1, 1, 2, 8}, Device("cpu:0"));
  for (const float value : max_pool2d(x, 2).to_vector<float>()) {
    const bool third = value == 8.0F;
    EXPECT_TRUE(std::isnan(value) || third) << value;
  }
  const std::vector<float> y = max_pool2d(x, 2).to_vector<float>();
  EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1]) && std::isnan(y[2]) && std::isnan(y[3]));
  // The last of several takes the gradient, as in torch; a window without any keeps its number.
  const Tensor two =
      from_values(std::vector<float>{1, kNan, kNan, 0, 3, 4, 5, 6}, {1, 2, 2, 2}).requires_grad_();
  const Tensor best = max_pool2d(two, 2);
  EXPECT_TRUE(std::isnan(best.to_vector<float>()[0]));
  EXPECT_EQ(best.to_vector<float>()[1], 6);
  best.backward(ones({1, 2, 1, 1}));
  EXPECT_EQ(two.grad().to_vector<float>(), (std::vector<float>{0, 0, 1, 0, 0, 0, 0, 1}));
}

TEST(MaxPool2d, LetsANanWinInManyWindowsAtOnce) {
  std::vector<float> values(20, 1);
  values[7] = kNan;
  const Tensor x = from_values(values, {1, 1, 20}, Device("cpu:0")).requires_grad_();
  const Tensor y = max_pool2d(x, {1, 3}, 1);
  y.backward(ones(y.sizes(), y.options()));
  const std::vector<float> best = y.to_vector<float>();
  for (std::size_t i = 0; i < best.size(); ++i) EXPECT_EQ(std::isnan(best[i]), i >= 5 && i <= 7);
  EXPECT_EQ(x.grad().to_vector<float>()[7], 3);
}

TEST(MaxPool2d, TakesInfinitiesAndPlanesOfThemAlone) {
  const float low = -std::numeric_limits<float>::infinity();
  const Tensor x = full({1, 1, 3, 3}, low);
  EXPECT_EQ(max_pool2d(x, 2, 2, 1).to_vector<float>(), std::vector<float>(4, low));
}

TEST(MaxPool2d, SaysWhatDoesNotFit) {
  const Tensor x = varied({1, 2, 4, 4});
  expect_error<ShapeError>([&] { max_pool2d(varied({4, 4}), 2); }, {"max_pool2d", "[4, 4]"});
  expect_error<ShapeError>([&] { max_pool2d(x, 5); }, {"[5, 5]", "[1, 2, 4, 4]"});
  expect_error<ValueError>([&] { max_pool2d(x, {0, 1}); }, {"kernel", "[0, 1]"});
  expect_error<ValueError>([&] { max_pool2d(x, {1, 0}); }, {"kernel", "[1, 0]"});
  EXPECT_EQ(max_pool2d(x, 1).to_vector<double>(), x.to_vector<double>());
  for (const Shape& shape : {Shape{2, 0, 4}, Shape{2, 4, 0}}) {
    expect_error<ShapeError>([&] { max_pool2d(zeros(shape), 2, 2, 1); }, {"max_pool2d"});
  }
  expect_error<ValueError>(
      [&] {
        max_pool2d(x, {INT64_MAX, 1}, 1, {INT64_MAX / 2, 0});
      },
      {"kernel", "at most", "[9223372036854775807, 1]"});
  expect_error<ValueError>([&] { max_pool2d(x, 2, {0, 1}); }, {"stride", "[0, 1]"});
  expect_error<ValueError>([&] { max_pool2d(x, 2, {1, 0}); }, {"stride", "[1, 0]"});
  expect_error<ValueError>([&] { max_pool2d(x, 2, 2, {2, 0}); }, {"padding", "half", "[2, 0]"});
  expect_error<ValueError>([&] { max_pool2d(x, 2, 2, {0, 2}); }, {"padding", "half", "[0, 2]"});
  expect_error<DtypeError>(
      [&] {
        max_pool2d(zeros({1, 2, 2}, {.dtype = Dtype::i64}), 2);
      },
      {"max_pool2d", "i64"});
}

Tensor mean_by_definition(const Case& c, const Tensor& x, bool count_include_pad) {
  const std::int64_t height = x.size(-2);
  const std::int64_t width = x.size(-1);
  Shape shape = x.sizes();
  shape[shape.size() - 2] = (height + 2 * c.padding.height - c.kernel.height) / c.stride.height + 1;
  shape[shape.size() - 1] = (width + 2 * c.padding.width - c.kernel.width) / c.stride.width + 1;
  const std::vector<double> in = x.to_vector<double>();
  std::vector<double> out;
  for (std::int64_t p = 0; p < x.numel() / (height * width); ++p) {
    for (std::int64_t y = 0; y < shape[shape.size() - 2]; ++y) {
      for (std::int64_t z = 0; z < shape[shape.size() - 1]; ++z) {
        double sum = 0;
        int count = 0;
        for (std::int64_t i = 0; i < c.kernel.height; ++i) {
          for (std::int64_t j = 0; j < c.kernel.width; ++j) {
            const std::int64_t row = y * c.stride.height + i - c.padding.height;
            const std::int64_t col = z * c.stride.width + j - c.padding.width;
            const bool inside = row >= 0 && row < height && col >= 0 && col < width;
            if (inside) sum += in[static_cast<std::size_t>((p * height + row) * width + col)];
            if (inside || count_include_pad) ++count;
          }
        }
        out.push_back(sum / count);
      }
    }
  }
  return from_values(out, shape, x.device());
}

TEST(AvgPool2d, AgreesWithTheDefinition) {
  for (const Case& c : cases()) {
    for (const bool count_include_pad : {true, false}) {
      const Tensor x = varied(c.x);
      const Tensor y = avg_pool2d(x, c.kernel, c.stride, c.padding, count_include_pad);
      EXPECT_TRUE(all_close(y, mean_by_definition(c, x, count_include_pad), 1e-14)) << c.x;
    }
  }
  for (const Case& c : wide_cases()) {
    const Tensor x = quarters(c.x);
    const Tensor f32 = x.to(Dtype::f32);
    for (const bool count_include_pad : {true, false}) {
      const Tensor expected = mean_by_definition(c, x, count_include_pad);
      const auto means = [&](const Tensor& of) {
        return avg_pool2d(of, c.kernel, c.stride, c.padding, count_include_pad).to(Dtype::f64);
      };
      EXPECT_TRUE(all_close(means(x), expected, 1e-14)) << c.x;
      EXPECT_TRUE(all_close(means(f32), expected, 1e-6)) << c.x;
    }
  }
  EXPECT_EQ(avg_pool2d(varied({1, 2, 6, 6}), {2, 3}).sizes(), (Shape{1, 2, 3, 2}));
  EXPECT_EQ(avg_pool2d(varied({0, 2, 4, 4}), 2).sizes(), (Shape{0, 2, 2, 2}));
}

TEST(AvgPool2d, HasFirstAndSecondDerivatives) {
  for (const Case& c : cases()) {
    for (const bool count_include_pad : {true, false}) {
      const auto f = [&](const Tensor& x) {
        return avg_pool2d(x, c.kernel, c.stride, c.padding, count_include_pad);
      };
      EXPECT_TRUE(gradcheck(f, {varied_leaf(c.x)})) << c.x;
      EXPECT_TRUE(gradgradcheck(f, {varied_leaf(c.x)})) << c.x;
    }
  }
}

TEST(AvgPool2d, SaysWhatDoesNotFit) {
  const Tensor x = varied({1, 2, 4, 4});
  expect_error<ShapeError>([&] { avg_pool2d(varied({4, 4}), 2); }, {"avg_pool2d", "[4, 4]"});
  expect_error<ShapeError>([&] { avg_pool2d(x, 5); }, {"[5, 5]", "[1, 2, 4, 4]"});
  expect_error<ValueError>([&] { avg_pool2d(x, 2, 1, 2); }, {"padding", "[2, 2]"});
  constexpr std::int64_t kLong = std::int64_t{1} << 40;
  const Tensor one = avg_pool2d(ones({1, 1, 4, 4}), kLong, kLong, kLong / 2);
  EXPECT_EQ(one.to_vector<float>(), (std::vector<float>{0x1p-76F}));
  const Tensor mean = avg_pool2d(ones({1, 1, 4, 4}), kLong, kLong, kLong / 2, false);
  EXPECT_EQ(mean.to_vector<float>(), (std::vector<float>{1}));
  expect_error<DtypeError>(
      [&] {
        avg_pool2d(ones({1, 4, 4}, {.dtype = Dtype::i64}), 2);
      },
      {"avg_pool2d", "i64"});
}

}  // namespace pooling_test
}  // namespace lockstep
