// SPDX-License-Identifier: Apache-2.0
#include <lockstep/error.hpp>
#include <lockstep/module/concepts.hpp>
#include <lockstep/nn/pooling.hpp>

#include <gtest/gtest.h>

#include "nn/support.hpp"

namespace lockstep {
namespace pooling_test {

using testing::f32;
using testing::message_of;
using testing::parameter_names;
using testing::Values;
using testing::values_of;

static_assert(Module<nn::MaxPool2d> && ForwardableWith<const nn::MaxPool2d, Tensor>);

const Values kSixteen{1, 2,  3,  4,  5,  6,  7,  8,  //
                      9, 10, 11, 12, 13, 14, 15, 16};

TEST(MaxPool2d, TakesWindowsSideBySide) {
  const nn::MaxPool2d pool{2};
  const Tensor image = f32(kSixteen, {1, 1, 4, 4});
  EXPECT_EQ(values_of(pool(image)), (Values{6, 8, 14, 16}));
  EXPECT_EQ(pool.forward(image).sizes(), (Shape{1, 1, 2, 2}));
  EXPECT_TRUE(parameter_names(pool).empty());
}

TEST(MaxPool2d, TakesStrideAndPadding) {
  const Tensor image = f32(kSixteen, {1, 1, 4, 4});
  EXPECT_EQ(values_of(nn::MaxPool2d{2, {.stride = 1}}(image)),
            (Values{6, 7, 8, 10, 11, 12, 14, 15, 16}));
  EXPECT_EQ(values_of(nn::MaxPool2d{3, {.stride = 2, .padding = 1}}(image)),
            (Values{6, 8, 14, 16}));
  EXPECT_EQ(values_of(nn::MaxPool2d{{1, 4}}(image)), (Values{4, 8, 12, 16}));
}

TEST(MaxPool2d, NamesTheShapeThatDoesNotFit) {
  const nn::MaxPool2d pool{5};
  EXPECT_NE(message_of<ShapeError>([&] {
              pool(zeros({1, 1, 4, 4}));
            }).find("[1, 1, 4, 4]"),
            std::string::npos);
}

TEST(MaxPool2d, RefusesBadArguments) {
  EXPECT_THROW(nn::MaxPool2d{0}, ValueError);
  EXPECT_THROW((nn::MaxPool2d{2, {.stride = 0}}), ValueError);
  EXPECT_EQ(message_of<ValueError>([] {
              nn::MaxPool2d{2, {.padding = 2}};
            }),
            "MaxPool2d: expected a padding from 0 to half the kernel [2, 2], got [2, 2]");
}

TEST(AvgPool2d, TakesStrideAndPadding) {
  const Tensor image = f32(kSixteen, {1, 1, 4, 4});
  EXPECT_EQ(values_of(nn::AvgPool2d{2}(image)), (Values{3.5, 5.5, 11.5, 13.5}));
  EXPECT_EQ(values_of(nn::AvgPool2d{{1, 4}, {.stride = Size2d{2, 1}}}(image)), (Values{2.5, 10.5}));
  EXPECT_EQ(values_of(nn::AvgPool2d{2, {.padding = 1, .count_include_pad = false}}(image)),
            (Values{1, 2.5, 4, 7, 8.5, 10, 13, 14.5, 16}));
  EXPECT_TRUE(parameter_names(nn::AvgPool2d{2}).empty());
}

TEST(AvgPool2d, RefusesBadArguments) {
  EXPECT_THROW(nn::AvgPool2d{0}, ValueError);
  EXPECT_NE(message_of<ValueError>([] {
              nn::AvgPool2d{2, {.padding = 2}};
            }).find("AvgPool2d: expected a padding"),
            std::string::npos);
}

}  // namespace pooling_test
}  // namespace lockstep
