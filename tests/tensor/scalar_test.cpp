// SPDX-License-Identifier: Apache-2.0
#include <lockstep/tensor/scalar.hpp>

#include <lockstep/error.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/compare.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/ops/where.hpp>
#include <lockstep/tensor/creation.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <sstream>
#include <type_traits>
#include <vector>

#include "support/expect_error.hpp"

namespace lockstep {
namespace scalar_test {

using testing::throws;

constexpr std::int64_t kOdd = (std::int64_t{1} << 53) + 1;  // no double is
constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::lowest();
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

Tensor whole(std::int64_t value) { return scalar_tensor(value, "cpu:0"); }
std::int64_t value_of(const Tensor& x) { return x.item<std::int64_t>(); }

TEST(Scalar, KeepsIntegersAsSuchAndAllElseAsADouble) {
  const auto is_whole = [](Scalar number) {
    return number.visit([](auto value) { return std::is_integral_v<decltype(value)>; });
  };
  EXPECT_TRUE(is_whole(kOdd) && is_whole(0) && is_whole(3U) && is_whole(true) && is_whole(kLeast));
  EXPECT_FALSE(is_whole(3.0) || is_whole(2.5F) || is_whole(~std::uint64_t{0}));
  EXPECT_EQ(Scalar(~std::uint64_t{0}), 0x1p64);
  EXPECT_EQ(Scalar(3), 3.0);
  EXPECT_FALSE(Scalar(kOdd) == kOdd - 1);
  EXPECT_TRUE(is_whole(-Scalar(kOdd)));
  EXPECT_EQ(-Scalar(kOdd), -kOdd);
  EXPECT_EQ(-Scalar(kLeast), 0x1p63);
  EXPECT_TRUE(std::signbit((-Scalar(0)).as<double>()));
  std::ostringstream out;
  out << Scalar(kOdd) << ' ' << Scalar(0.5);
  EXPECT_EQ(out.str(), "9007199254740993 0.5");
}

TEST(Scalar, NoIntegerBesideATensorLosesDigits) {
  const Tensor x = whole(kOdd);
  EXPECT_TRUE(eq(x, kOdd).item<bool>() && ne(x, kOdd - 1).item<bool>());
  EXPECT_TRUE(gt(x, kOdd - 1).item<bool>() && le(x, kOdd).item<bool>());
  EXPECT_FALSE(ge(x, kOdd + 1).item<bool>() || lt(x, kOdd).item<bool>());
  EXPECT_EQ(value_of(x + kOdd), 2 * kOdd);
  EXPECT_EQ(value_of(x - kOdd), 0);
  EXPECT_EQ(value_of(whole(-1) - kLeast), -(kLeast + 1));
  EXPECT_EQ(value_of(kOdd - whole(1)), kOdd - 1);
  EXPECT_EQ(value_of(whole(3) * kOdd), 3 * kOdd);
  EXPECT_EQ(value_of(add(whole(1), whole(1), kOdd)), kOdd + 1);
  EXPECT_EQ(value_of(clamp(whole(0), kOdd)), kOdd);
  EXPECT_EQ(value_of(where(whole(0).to(Dtype::boolean), 0, full({}, kOdd, x.options()))), kOdd);
  EXPECT_EQ(value_of(where(whole(0).to(Dtype::boolean), x, kOdd + 1)), kOdd + 1);
  Tensor changed = whole(1);
  changed += kOdd;
  changed -= 2;
  EXPECT_EQ(value_of(changed), kOdd - 1);
  EXPECT_EQ(value_of(changed.fill_(kOdd)), kOdd);
  EXPECT_EQ(value_of(changed.mul_(kOdd).fill_(1).add_(whole(1), kOdd)), kOdd + 1);
  const Tensor apart = zeros({3, 2}, {.dtype = Dtype::i64, .device = "cpu:0"}).t();
  EXPECT_EQ(apart.fill_(kOdd).to_vector<std::int64_t>(), std::vector<std::int64_t>(6, kOdd));
}

TEST(Scalar, ANumberThatTheElementsCannotBeIsAnError) {
  EXPECT_TRUE(throws<DtypeError>([] { (void)eq(whole(1).to(Dtype::i32), 3000000000); },
                                 "eq: the number 3000000000 does not fit a tensor of i32"));
  const auto fill = [](Scalar number, Dtype dtype) {
    return [=] { (void)full({1}, number, {.dtype = dtype, .device = "cpu:0"}); };
  };
  EXPECT_TRUE(throws<DtypeError>(fill(3e9, Dtype::i32), "full", "3e+09", "i32"));
  EXPECT_TRUE(throws<DtypeError>(fill(3000000000, Dtype::i32), "full", "3000000000", "i32"));
  EXPECT_TRUE(throws<DtypeError>(fill(0x1p63, Dtype::i64), "i64"));
  EXPECT_TRUE(throws<DtypeError>(fill(NAN, Dtype::i64), "i64"));
  EXPECT_TRUE(throws<DtypeError>(fill(-INFINITY, Dtype::i64), "i64"));
  EXPECT_TRUE(throws<DtypeError>(fill(256, Dtype::u8), "u8"));
  EXPECT_TRUE(throws<DtypeError>(fill(-256, Dtype::u8), "u8"));
  EXPECT_TRUE(throws<DtypeError>(fill(1e300, Dtype::f32), "1e+300", "f32"));
  EXPECT_TRUE(throws<DtypeError>([] { (void)zeros({1}, {.device = "cpu:0"}).fill_(-1e300); },
                                 "fill_", "-1e+300", "f32"));
  EXPECT_TRUE(throws<DtypeError>(
      [] { (void)where(whole(0).to(Dtype::boolean), scalar_tensor(1.0F, "cpu:0"), 1e300); },
      "where", "1e+300", "f32"));
}

// As torch has it.
TEST(Scalar, FillsWithWhatTheDtypeMakesOfIt) {
  const auto filled = [](Scalar number, Dtype dtype) {
    return full({1}, number, {.dtype = dtype, .device = "cpu:0"}).to(Dtype::f64).item();
  };
  EXPECT_EQ(filled(-2.7, Dtype::i64), -2);
  EXPECT_EQ(filled(-0x1p63, Dtype::i64), -0x1p63);
  EXPECT_EQ(filled(255.5, Dtype::u8), 255);
  EXPECT_EQ(filled(-1, Dtype::u8), 255);
  EXPECT_EQ(filled(-1.5, Dtype::u8), 255);
  EXPECT_EQ(filled(0.5, Dtype::boolean), 1);
  EXPECT_EQ(filled(NAN, Dtype::boolean), 1);
  EXPECT_EQ(filled(INFINITY, Dtype::f32), INFINITY);
  EXPECT_TRUE(std::isnan(filled(NAN, Dtype::f32)));
  EXPECT_EQ(filled(1e6, Dtype::f16), INFINITY);
}

TEST(Scalar, WhatIsRefusedIsNoChange) {
  const Tensor x = zeros({2, 2}, Dtype::i32);
  const std::uint64_t version = x.version();
  EXPECT_TRUE(throws<DtypeError>([&] { x.fill_(3e9); }, "fill_"));
  EXPECT_TRUE(throws<DtypeError>([&] { x.t().fill_(3e9); }, "fill_"));
  EXPECT_EQ(x.version(), version);
}

TEST(Scalar, AnItemIsTheNumberOrAnError) {
  EXPECT_EQ(value_of(whole(kOdd)), kOdd);
  EXPECT_TRUE(throws<DtypeError>([] { (void)whole(kOdd).item(); }, "item", "9007199254740993",
                                 "item<std::int64_t>()"));
  EXPECT_TRUE(throws<DtypeError>([] { (void)whole(kMost).item(); }, "9223372036854775807"));
  EXPECT_EQ(whole(kOdd - 1).item(), 0x1p53);
  EXPECT_EQ(whole(kLeast).item(), -0x1p63);
  EXPECT_TRUE(throws<DtypeError>([] { (void)whole(3000000000).item<std::int32_t>(); }, "item",
                                 "3000000000"));
  EXPECT_TRUE(throws<DtypeError>([] { (void)scalar_tensor(NAN, "cpu:0").item<std::int32_t>(); },
                                 "item", "nan"));
  EXPECT_EQ(scalar_tensor(2.5F, "cpu:0").item<std::int32_t>(), 2);
}

}  // namespace scalar_test
}  // namespace lockstep
