// SPDX-License-Identifier: Apache-2.0
#include <lockstep/tensor/shape.hpp>

#include <lockstep/error.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace lockstep {
namespace shape_test {

TEST(Shape, IsAShortVectorThatPrintsAsTorchs) {
  Shape shape = {30, 5};
  EXPECT_EQ(detail::str(shape, Shape{}, Shape{7}), "[30, 5][][7]");
  shape.insert(0, 2);
  shape.insert(3, 9);
  EXPECT_EQ(shape, (Shape{2, 30, 5, 9}));
  shape.erase(1);
  EXPECT_EQ(shape, (Shape{2, 5, 9}));
  EXPECT_EQ(shape.front(), 2);
  EXPECT_EQ(shape.back(), 9);
  EXPECT_NE(shape, (Shape{2, 5}));
  EXPECT_NE(shape, (Shape{2, 5, 8}));
}

TEST(Shape, IsMadeOfListsVectorsAndSpans) {
  const std::vector<std::int64_t> sizes = {2, 5};
  const auto same = [](const Shape& shape) { return shape == Shape{2, 5}; };
  EXPECT_TRUE(same({2, 5}));
  EXPECT_TRUE(same(sizes));
  EXPECT_TRUE(same(std::span(sizes)));
}

TEST(Shape, HasAtMostEightDimensions) {
  Shape shape = {1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_THROW(shape.push_back(9), ShapeError);
  EXPECT_THROW((Shape{1, 2, 3, 4, 5, 6, 7, 8, 9}), ShapeError);
  EXPECT_EQ(shape.size(), 8U);
}

TEST(Shape, CountsElements) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(numel({}), 1);
  EXPECT_EQ(numel({2, 3, 4}), 24);
  EXPECT_EQ(numel({2, 0, 4}), 0);
  EXPECT_EQ(numel({kMost, kMost, 0}), 0);
  EXPECT_THROW((void)numel({2, -1}), ShapeError);
  EXPECT_THROW((void)numel({0, -1}), ShapeError);
  EXPECT_THROW((void)numel({kMost, 2}), ShapeError);
  EXPECT_THROW((void)numel({std::int64_t{1} << 32, std::int64_t{1} << 32}), ShapeError);
}

TEST(Shape, StridesAreRowMajor) {
  EXPECT_EQ(contiguous_strides({2, 3, 4}), (Shape{12, 4, 1}));
  EXPECT_EQ(contiguous_strides({2, 0, 4}), (Shape{4, 4, 1}));
  EXPECT_EQ(contiguous_strides({}), Shape{});
}

TEST(Shape, DimensionsCountFromEitherEnd) {
  EXPECT_EQ(wrap_dim(0, 3), 0U);
  EXPECT_EQ(wrap_dim(-1, 3), 2U);
  EXPECT_EQ(wrap_dim(-3, 3), 0U);
  EXPECT_EQ(wrap_dim(-1, 0), 0U);
  try {
    (void)wrap_dim(3, 3);
    FAIL();
  } catch (const IndexError& error) {
    EXPECT_EQ(std::string(error.what()),
              "Dimension out of range (expected to be in range of [-3, 2], but got 3)");
  }
  EXPECT_THROW((void)wrap_dim(-4, 3), IndexError);
}

}  // namespace shape_test
}  // namespace lockstep
