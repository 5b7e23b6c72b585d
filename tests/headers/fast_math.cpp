// SPDX-License-Identifier: Apache-2.0

// Compiled with -ffast-math, as a user's program may be: NaN and infinity stay what they are where
// tensors are filled, read, printed and compared. (What operations make of NaN is the flag's.)
#include <lockstep/error.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/parallel/nested/same_structure.hpp>
#include <lockstep/parallel/split.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/print.hpp>

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <limits>
#include <sstream>
#include <string>
#include <utility>

namespace lockstep {
namespace {

constexpr std::uint64_t kInfinity = 0x7ff0000000000000;
constexpr std::uint64_t kNan = 0x7ff8000000000000;
constexpr std::uint64_t kSign = 0x8000000000000000;

// Bits that the compiler does not know.
double number_of(std::uint64_t bits) {
  const volatile std::uint64_t unknown = bits;
  return std::bit_cast<double>(std::uint64_t{unknown});
}

Tensor tensor_of(std::uint64_t bits, Dtype dtype = Dtype::f64) {
  return full({}, number_of(bits), {.dtype = dtype, .device = "cpu:0"});
}

std::string text_of(const Tensor& x) {
  std::ostringstream out;
  out << x;
  return out.str();
}

TEST(FastMath, NanAndInfinityPassThroughTensors) {
  const auto singles = {
      std::pair(kInfinity, 0x7f800000U), {kInfinity | kSign, 0xff800000U}, {kNan, 0x7fc00000U}};
  for (const auto& [bits, single] : singles) {
    EXPECT_EQ(std::bit_cast<std::uint64_t>(tensor_of(bits).item()), bits);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(tensor_of(bits, Dtype::f32).item<float>()), single);
  }
  EXPECT_EQ(text_of(tensor_of(kNan, Dtype::f32)), "tensor(nan, device=cpu:0)");
  EXPECT_EQ(text_of(tensor_of(kInfinity | kSign, Dtype::f32)), "tensor(-inf, device=cpu:0)");
}

TEST(FastMath, NoIntegerIsMadeOfNanOrInfinity) {
  for (const std::uint64_t bits : {kInfinity, kInfinity | kSign, kNan}) {
    const Tensor x = tensor_of(bits);
    EXPECT_THROW(x.item<std::int64_t>(), DtypeError);
    EXPECT_THROW(x.item<std::int32_t>(), DtypeError);
    EXPECT_THROW(x.item<std::uint8_t>(), DtypeError);
    EXPECT_THROW(tensor_of(bits, Dtype::i64), DtypeError);
    EXPECT_THROW(tensor_of(bits, Dtype::u8), DtypeError);
  }
}

TEST(FastMath, IntegersReachAsFarAsWithoutIt) {
  const auto item = [](double number) {
    return full({}, number, {.dtype = Dtype::f64, .device = "cpu:0"}).item<std::int32_t>();
  };
  EXPECT_EQ(item(2147483647.5), std::numeric_limits<std::int32_t>::max());
  EXPECT_EQ(item(-2147483648.5), std::numeric_limits<std::int32_t>::lowest());
  EXPECT_THROW(item(2147483648.0), DtypeError);
  EXPECT_THROW(item(-2147483649.0), DtypeError);
  EXPECT_THROW(full({}, 1e39, {.dtype = Dtype::f32, .device = "cpu:0"}), DtypeError);
}

TEST(FastMath, NanIsNotFalse) {
  EXPECT_TRUE(tensor_of(kNan).item<bool>());
  EXPECT_TRUE(tensor_of(kNan, Dtype::f32).to(Dtype::boolean).item<bool>());
  EXPECT_TRUE(tensor_of(kInfinity).item<bool>());
  EXPECT_FALSE(tensor_of(kSign).item<bool>());
  EXPECT_FALSE(tensor_of(0).to(Dtype::boolean).item<bool>());
}

TEST(FastMath, NanEqualsNanAloneBesideTensors) {
  const double nan = number_of(kNan);
  EXPECT_TRUE(detail::nested::same_value(nan, number_of(kNan | kSign)));
  EXPECT_FALSE(detail::nested::same_value(nan, 0.5));
  EXPECT_FALSE(detail::nested::same_value(0.5, nan));
}

TEST(FastMath, ASettingThatIsNotFiniteIsAnError) {
  EXPECT_THROW((void)Split::weights({1, number_of(kNan)}), ValueError);
  EXPECT_THROW((void)Split::weights({1, number_of(kInfinity)}), ValueError);
}

}  // namespace
}  // namespace lockstep
