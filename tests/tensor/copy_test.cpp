// SPDX-License-Identifier: Apache-2.0
#include <lockstep/tensor/copy.hpp>

#include <lockstep/ops/expand.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace lockstep::detail {
namespace copy_test {

using Integers = std::vector<std::int64_t>;

// Every pair of contiguous and strided, on one device or two, of one dtype or two.
TEST(Copy, BetweenAnyLayoutsDevicesAndDtypes) {
  for (const Device to : {Device("cpu"), Device("cpu:1"), Device("cpu:2")}) {
    for (const Device from : {Device("cpu"), Device("cpu:1")}) {
      for (const bool strided_to : {false, true}) {
        for (const bool strided_from : {false, true}) {
          for (const Dtype dtype : {Dtype::i64, Dtype::f32}) {
            const Tensor base = arange(6, {.dtype = Dtype::i64, .device = from});
            const Tensor src = strided_from ? base.reshape({3, 2}).t() : base.reshape({2, 3});
            const Tensor room = zeros({12}, {.dtype = dtype, .device = to});
            const Tensor dst = strided_to ? room.reshape({2, 6}).narrow(1, 2, 3)
                                          : room.narrow(0, 1, 6).reshape({2, 3});
            copy_into(dst, src);
            const Tensor values = dst.to(Dtype::i64);
            EXPECT_EQ(values.to_vector<std::int64_t>(),
                      strided_from ? (Integers{0, 2, 4, 1, 3, 5}) : (Integers{0, 1, 2, 3, 4, 5}));
            std::int64_t total = 0;
            for (const std::int64_t v : room.to(Dtype::i64).to_vector<std::int64_t>()) total += v;
            EXPECT_EQ(total, 15) << "elements beside the view changed";
          }
        }
      }
    }
  }
}

TEST(Copy, MovesElementsOfEverySize) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::f16, Dtype::bf16, Dtype::i64, Dtype::i32,
                            Dtype::u8, Dtype::boolean}) {
    const Tensor numbers = cast(arange(6, {.dtype = Dtype::i64}), dtype);
    const Tensor turned = packed(numbers.reshape({3, 2}).t());
    EXPECT_EQ(turned.dtype(), dtype);
    EXPECT_EQ(turned.to(Dtype::i64).to_vector<std::int64_t>(),
              dtype == Dtype::boolean ? (Integers{0, 1, 1, 1, 1, 1}) : (Integers{0, 2, 4, 1, 3, 5}))
        << dtype;
  }
}

// Rows longer and shorter than a tile, read and written along them, across them and in steps, and
// stretched from one element.
TEST(Copy, PlacesEachElementWhereItBelongs) {
  for (const Shape& shape : {Shape{1, 3}, {8, 8}, {9, 17}, {30, 5}, {5, 30}}) {
    const std::int64_t rows = shape[0];
    const std::int64_t columns = shape[1];
    const Tensor numbers = arange(4 * rows * columns, {.dtype = Dtype::i64});
    const std::vector<Tensor> sources{
        numbers.narrow(0, 0, rows * columns).reshape(shape),
        numbers.narrow(0, 0, rows * columns).reshape({columns, rows}).t(),
        numbers.reshape({rows, 2, columns, 2}).select(3, 0).select(1, 1),
        numbers.reshape({columns, 2, rows, 2}).select(3, 1).select(1, 0).t(),
        numbers.narrow(0, 0, rows).reshape({rows, 1}).expand(shape),
        numbers.narrow(0, 0, columns).reshape({1, columns}).expand(shape)};
    for (const Tensor& source : sources) {
      Integers expected;
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t c = 0; c < columns; ++c) {
          expected.push_back(source.strides()[0] * r + source.strides()[1] * c +
                             source.impl()->offset);
        }
      }
      EXPECT_EQ(packed(source).to_vector<std::int64_t>(), expected) << shape;
      const Tensor turned = zeros({columns, rows}, {.dtype = Dtype::i64}).t();
      copy_into(turned, source);
      const Tensor spread = zeros({rows, columns, 2}, {.dtype = Dtype::i64}).select(2, 1);
      copy_into(spread, source);
      for (std::int64_t i = 0; i < rows * columns; ++i) {
        const auto at = static_cast<std::size_t>(i);
        EXPECT_EQ(select(select(turned, 0, i / columns), 0, i % columns).item<std::int64_t>(),
                  expected[at]);
        EXPECT_EQ(select(select(spread, 0, i / columns), 0, i % columns).item<std::int64_t>(),
                  expected[at]);
      }
    }
  }
}

TEST(Copy, CountsAsAChangeOfTheDestination) {
  const Tensor src = ones({2});
  const Tensor dst = zeros({2}, {.device = "cpu:1"});
  const std::uint64_t before = dst.version();
  copy_into(dst, src);
  EXPECT_GT(dst.version(), before);
  EXPECT_EQ(src.version(), ones({2}).version());
}

TEST(Copy, ShapesMustBeEqual) {
  EXPECT_THROW(copy_into(zeros({2}), zeros({1, 2})), ShapeError);
  copy_into(zeros({0, 2}), zeros({0, 2}));
}

TEST(Copy, PackedIsTheTensorItselfIfItCan) {
  const Tensor x = arange(6).reshape({2, 3});
  EXPECT_TRUE(packed(x).is_same(x));
  const Tensor y = packed(permute(x.reshape({1, 2, 3}), {2, 0, 1}));
  EXPECT_TRUE(y.is_contiguous());
  EXPECT_EQ(y.to_vector<std::int64_t>(), (Integers{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(packed(expand(tensor({7.0F}), {2, 3})).to_vector<float>(), std::vector<float>(6, 7.0F));
  EXPECT_EQ(extent(x.t()), 6U);
  EXPECT_EQ(extent(x.narrow(1, 0, 2)), 5U);
  EXPECT_EQ(extent(scalar_tensor(1.0F)), 1U);
}

}  // namespace copy_test
}  // namespace lockstep::detail
