// SPDX-License-Identifier: Apache-2.0
#include <lockstep/ops/group_norm.hpp>

#include <lockstep/autograd/autocast.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/gradcheck.hpp"
#include "support/varied.hpp"

namespace lockstep {
namespace group_norm_test {

using testing::all_close;
using testing::expect_error;
using testing::gradcheck;
using testing::gradgradcheck;
using testing::varied;
using testing::varied_leaf;

constexpr double kEps = 1e-3;

// The same as loops over the elements of each group.
Tensor by_hand(const Tensor& x, std::int64_t groups, const Tensor& weight, const Tensor& bias) {
  std::vector<double> values = x.to_vector<double>();
  const auto channels = static_cast<std::size_t>(x.size(1));
  const auto parts = static_cast<std::size_t>(x.size(0) * groups);
  const std::size_t width = values.size() / parts;
  const std::size_t inner = values.size() / (static_cast<std::size_t>(x.size(0)) * channels);
  for (std::size_t p = 0; p < parts; ++p) {
    double* const part = values.data() + p * width;
    double mean = 0;
    for (std::size_t i = 0; i < width; ++i) mean += part[i] / static_cast<double>(width);
    double var = 0;
    for (std::size_t i = 0; i < width; ++i) {
      var += (part[i] - mean) * (part[i] - mean) / static_cast<double>(width);
    }
    for (std::size_t i = 0; i < width; ++i) part[i] = (part[i] - mean) / std::sqrt(var + kEps);
  }
  const auto numbers = [&](const Tensor& of, double otherwise) {
    return of.defined() ? of.to_vector<double>() : std::vector<double>(channels, otherwise);
  };
  const std::vector<double> factors = numbers(weight, 1);
  const std::vector<double> offsets = numbers(bias, 0);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t channel = i / inner % channels;
    values[i] = values[i] * factors[channel] + offsets[channel];
  }
  return from_values(values, x.sizes(), x.device());
}

TEST(GroupNorm, IsWhatItIsByHand) {
  for (const Shape& shape : {Shape{2, 6}, Shape{2, 6, 5}, Shape{3, 6, 2, 4}}) {
    const Tensor x = varied(shape);
    for (const std::int64_t groups : {1, 2, 6}) {
      for (const Tensor& weight : {Tensor(), varied({6}, 1)}) {
        for (const Tensor& bias : {Tensor(), varied({6}, 2)}) {
          EXPECT_TRUE(all_close(group_norm(x, groups, weight, bias, kEps),
                                by_hand(x, groups, weight, bias), 1e-12, 1e-12))
              << shape << " in " << groups;
        }
      }
    }
  }
  const Tensor images = permute(varied({2, 3, 2, 6}), {0, 3, 1, 2});
  EXPECT_TRUE(
      all_close(group_norm(images, 2, {}, {}, kEps), by_hand(images, 2, {}, {}), 1e-12, 1e-12));
  EXPECT_EQ(group_norm(zeros({0, 4, 3}), 2).sizes(), (Shape{0, 4, 3}));
}

TEST(GroupNorm, HasFirstAndSecondDerivatives) {
  const auto norm = [](const Tensor& x, const Tensor& weight, const Tensor& bias) {
    return group_norm(x, 2, weight, bias, kEps);
  };
  const std::vector<Tensor> x = {varied_leaf({2, 4, 3}), varied_leaf({4}, 1), varied_leaf({4}, 2)};
  EXPECT_TRUE(gradcheck(norm, x));
  EXPECT_TRUE(gradgradcheck(norm, x));
  EXPECT_TRUE(gradcheck(norm, {x[0], Tensor(), x[2]}));
}

TEST(GroupNorm, HalfPrecisionIsRoundedOnceAndAutocastGivesF32) {
  const Tensor x = varied<float>({2, 4, 3}).to(Dtype::bf16);
  const Tensor wide = group_norm(x.to(Dtype::f32), 2);
  EXPECT_EQ(group_norm(x, 2).dtype(), Dtype::bf16);
  EXPECT_EQ(group_norm(x, 2).to(Dtype::f32).to_vector<float>(),
            wide.to(Dtype::bf16).to(Dtype::f32).to_vector<float>());
  const AutocastGuard on(true);
  EXPECT_EQ(group_norm(x, 2).dtype(), Dtype::f32);
}

TEST(GroupNorm, OfNothingMayBeOfAnyNumberOfGroups) {
  EXPECT_EQ(group_norm(zeros({3, 0}), INT64_MAX).sizes(), (Shape{3, 0}));
  constexpr std::int64_t kLarge = std::int64_t{1} << 62;
  EXPECT_EQ(group_norm(zeros({kLarge, 4, 0}), 4).sizes(), (Shape{kLarge, 4, 0}));
}

TEST(GroupNorm, NamesWhatDoesNotFit) {
  const Tensor x = varied({2, 4, 3});
  expect_error<ValueError>([&] { group_norm(x, 3); }, {"group_norm", "4 channels", "3 groups"});
  expect_error<ValueError>([&] { group_norm(x, 0); }, {"0 groups"});
  expect_error<DtypeError>([&] { group_norm(x.to(Dtype::i64), 2); }, {"group_norm", "i64"});
  expect_error<ValueError>([&] { group_norm(Tensor(), 1); }, {"group_norm", "undefined"});
  expect_error<ShapeError>([&] { group_norm(varied({4}), 2); }, {"[batch, channels, …]", "[4]"});
  expect_error<ShapeError>([&] { group_norm(x, 2, varied({3})); }, {"weight", "[4]", "[3]"});
  expect_error<DtypeError>([&] { group_norm(x, 2, {}, varied<float>({4})); }, {"bias", "f32"});
  expect_error<DeviceError>([&] { group_norm(x, 2, varied({4}).to("cpu:1")); }, {"cpu:1"});
}

}  // namespace group_norm_test
}  // namespace lockstep
