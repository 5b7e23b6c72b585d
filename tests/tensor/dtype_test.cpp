// SPDX-License-Identifier: Apache-2.0
#include <lockstep/tensor/dtype.hpp>

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

namespace lockstep {
namespace dtype_test {

TEST(Dtype, NamesAndSizes) {
  EXPECT_EQ(detail::str(Dtype::f32, ' ', Dtype::f64, ' ', Dtype::f16, ' ', Dtype::bf16, ' ',
                        Dtype::i64, ' ', Dtype::i32, ' ', Dtype::u8, ' ', Dtype::boolean),
            "f32 f64 f16 bf16 i64 i32 u8 bool");
  const auto size = []<class T>(T) { return sizeof(T) == element_size(dtype_of<T>); };
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(dispatch_all(static_cast<Dtype>(i), size)) << i;
  EXPECT_TRUE(is_floating_point(Dtype::bf16));
  EXPECT_FALSE(is_floating_point(Dtype::boolean));
}

TEST(Dtype, DispatchNamesTheOperationAndTheDtype) {
  const auto body = [](auto) { return 1; };
  EXPECT_EQ(dispatch_floating(Dtype::f64, "exp", body), 1);
  EXPECT_EQ(dispatch_numeric(Dtype::i32, "add", body), 1);
  try {
    (void)dispatch_floating(Dtype::i64, "exp", body);
    FAIL();
  } catch (const DtypeError& error) {
    EXPECT_EQ(std::string(error.what()), "exp: expected f32 or f64, got i64");
  }
  EXPECT_THROW((void)dispatch_numeric(Dtype::boolean, "add", body), DtypeError);
}

TEST(Dtype, EveryHalfSurvivesTheWayThroughFloat) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    Half half;
    half.bits = static_cast<std::uint16_t>(bits);
    BFloat16 brain;
    brain.bits = static_cast<std::uint16_t>(bits);
    const auto through = [](auto value) { return decltype(value)(static_cast<float>(value)); };
    if (std::isnan(static_cast<float>(half))) {
      EXPECT_TRUE(std::isnan(static_cast<float>(through(half))));
    } else {
      EXPECT_EQ(through(half).bits, bits);
    }
    if (std::isnan(static_cast<float>(brain))) {
      EXPECT_TRUE(std::isnan(static_cast<float>(through(brain))));
    } else {
      EXPECT_EQ(through(brain).bits, bits);
    }
  }
}

// Between two neighbours the nearer is taken, in the middle the even one.
TEST(Dtype, ConversionsRoundToNearestEven) {
  for (std::uint16_t bits = 0; bits < 0x7bff; ++bits) {
    Half low;
    low.bits = bits;
    Half high;
    high.bits = static_cast<std::uint16_t>(bits + 1);
    const float middle = (static_cast<float>(low) + static_cast<float>(high)) / 2;
    EXPECT_EQ(Half(middle).bits, bits % 2 == 0 ? bits : high.bits);
    EXPECT_EQ(Half(std::nextafter(middle, 0.0F)).bits, bits);
    EXPECT_EQ(Half(std::nextafter(middle, 1e9F)).bits, high.bits);
  }
  EXPECT_EQ(BFloat16(std::bit_cast<float>(0x3f808000U)).bits, 0x3f80);
  EXPECT_EQ(BFloat16(std::bit_cast<float>(0x3f818000U)).bits, 0x3f82);
  EXPECT_EQ(BFloat16(std::bit_cast<float>(0x3f808001U)).bits, 0x3f81);
}

TEST(Dtype, TheLargestAndBeyond) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(static_cast<float>(Half(65504.0F)), 65504.0F);
  EXPECT_EQ(static_cast<float>(Half(65519.99F)), 65504.0F);
  EXPECT_EQ(static_cast<float>(Half(65520.0F)), inf);
  EXPECT_EQ(static_cast<float>(Half(-inf)), -inf);
  EXPECT_EQ(static_cast<float>(Half(0x1p-24F)), 0x1p-24F);
  EXPECT_EQ(static_cast<float>(Half(0x1p-25F)), 0.0F);
  EXPECT_EQ(static_cast<float>(Half(std::nextafter(0x1p-25F, 1.0F))), 0x1p-24F);
  EXPECT_TRUE(std::signbit(static_cast<float>(Half(-0.0F))));
  EXPECT_EQ(static_cast<float>(BFloat16(inf)), inf);
  EXPECT_EQ(static_cast<float>(BFloat16(std::numeric_limits<float>::max())), inf);
}

}  // namespace dtype_test
}  // namespace lockstep
