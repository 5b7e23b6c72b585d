// SPDX-License-Identifier: Apache-2.0
#include <lockstep/ops/channel_sum.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/tensor/creation.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/gradcheck.hpp"
#include "support/varied.hpp"

namespace lockstep {
namespace channel_sum_test {

using testing::gradcheck;
using testing::gradgradcheck;
using testing::varied;
using testing::varied_leaf;

TEST(ChannelSum, SumsOverAllOtherDimensions) {
  const Tensor x = from_values(std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}, {2, 2, 2});
  EXPECT_EQ(detail::channel_sum(x, 0).to_vector<float>(), (std::vector<float>{10, 26}));
  EXPECT_EQ(detail::channel_sum(x, 1).to_vector<float>(), (std::vector<float>{14, 22}));
  EXPECT_EQ(detail::channel_sum(x, 2).to_vector<float>(), (std::vector<float>{16, 20}));
}

TEST(ChannelSum, TakesMoreChannelsThanABlockAndNoRowsAtAll) {
  const Tensor x = ones({3, 150});
  EXPECT_EQ(detail::channel_sum(x, 1).to_vector<float>(), std::vector<float>(150, 3));
  EXPECT_EQ(detail::channel_sum(varied({0, 3}), 1).to_vector<double>(), std::vector<double>(3, 0));
}

TEST(ChannelSum, DoesNotLoseSmallTermsBesideLargeOnes) {
  std::vector<float> values(10001, 1);
  values[0] = 16777216;
  const auto count = static_cast<std::int64_t>(values.size());
  EXPECT_EQ(detail::channel_sum(from_values(values, {count, 1}), 1).item<double>(), 16787216);
  EXPECT_EQ(detail::channel_sum(from_values(values, {1, count}), 0).item<double>(), 16787216);
}

TEST(ChannelSum, AFewChannelsHaveTheBitsOfMany) {
  const Tensor many = varied({37, 9});
  const std::vector<double> sums = detail::channel_sum(many, 1).to_vector<double>();
  for (std::int64_t count = 1; count <= 5; ++count) {
    const Tensor few = many.narrow(1, 0, count).contiguous();
    EXPECT_EQ(detail::channel_sum(few, 1).to_vector<double>(),
              std::vector<double>(sums.begin(), sums.begin() + count));
  }
}

TEST(ChannelSum, HasFirstAndSecondDerivatives) {
  const auto f = [](const Tensor& x) { return detail::channel_sum(x, 1); };
  for (const Shape& shape : {Shape{3, 4}, Shape{2, 3, 2, 5}}) {
    EXPECT_TRUE(gradcheck(f, {varied_leaf(shape)}));
    EXPECT_TRUE(gradgradcheck(f, {varied_leaf(shape)}));
  }
}

}  // namespace channel_sum_test
}  // namespace lockstep
