// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/memory_format.hpp>

#include <gtest/gtest.h>

#include "support/gradcheck.hpp"
#include "support/varied.hpp"

namespace lockstep {
namespace memory_format_test {

using testing::all_close;
using testing::expect_error;
using testing::gradcheck;
using testing::varied;
using testing::varied_leaf;

constexpr MemoryFormat kLast = MemoryFormat::channels_last;

TEST(MemoryFormat, ChannelsLastPutsTheChannelsOfAPixelSideBySide) {
  const Tensor x = varied({2, 3, 4, 5});
  const Tensor y = x.contiguous(kLast);
  EXPECT_EQ(y.sizes(), x.sizes());
  EXPECT_EQ(y.strides(), (Shape{60, 1, 15, 3}));
  EXPECT_TRUE(y.is_contiguous(kLast));
  EXPECT_FALSE(y.is_contiguous());
  EXPECT_FALSE(x.is_contiguous(kLast));
  EXPECT_TRUE(x.is_contiguous(MemoryFormat::contiguous));
  EXPECT_EQ(y.to_vector<double>(), x.to_vector<double>());
  EXPECT_TRUE(y.contiguous(kLast).is_same(y));
  EXPECT_EQ(y.contiguous(MemoryFormat::contiguous).strides(), x.strides());
}

TEST(MemoryFormat, BothAreOneWhereThereIsOneChannelOrOnePixel) {
  for (const Shape& shape : {Shape{2, 1, 4, 5}, Shape{2, 3, 1, 1}, Shape{0, 3, 4, 5}}) {
    const Tensor x = zeros(shape);
    EXPECT_TRUE(x.is_contiguous(kLast)) << shape;
    EXPECT_TRUE(x.contiguous(kLast).is_same(x)) << shape;
  }
}

TEST(MemoryFormat, IsDifferentiable) {
  EXPECT_TRUE(
      gradcheck([](const Tensor& x) { return x.contiguous(kLast); }, {varied_leaf({2, 2, 3, 2})}));
}

TEST(MemoryFormat, AGradientHasTheLayoutOfItsLeaf) {
  const Tensor x = varied({2, 3, 4, 5}).contiguous(kLast).detach();
  x.requires_grad_();
  const Tensor weights = varied({2, 3, 4, 5}, 2);
  for (const double times : {1, 2}) {  // the second is added to the first
    (x * weights).backward(ones(x.sizes(), x.options()));
    EXPECT_EQ(x.grad().strides(), x.strides());
    EXPECT_TRUE(all_close(x.grad(), weights * times, 1e-12));
  }
}

TEST(MemoryFormat, IsForImages) {
  EXPECT_FALSE(zeros({3, 4}).is_contiguous(kLast));
  expect_error<ShapeError>([] { zeros({3, 4}).contiguous(kLast); }, {"channels_last", "[3, 4]"});
}

}  // namespace memory_format_test
}  // namespace lockstep
