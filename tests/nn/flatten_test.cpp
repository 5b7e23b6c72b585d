// SPDX-License-Identifier: Apache-2.0
#include <lockstep/error.hpp>
#include <lockstep/module/concepts.hpp>
#include <lockstep/nn/flatten.hpp>

#include <gtest/gtest.h>

#include "nn/support.hpp"

namespace lockstep {
namespace flatten_test {

static_assert(Module<nn::Flatten> && ForwardableWith<const nn::Flatten, Tensor>);

TEST(Flatten, KeepsTheBatch) {
  EXPECT_EQ(nn::Flatten{}(zeros({8, 64, 4, 4})).sizes(), (Shape{8, 1024}));
  EXPECT_EQ(nn::Flatten{}.forward(zeros({8, 3})).sizes(), (Shape{8, 3}));
}

TEST(Flatten, TakesARangeOfDimensions) {
  const nn::Flatten flatten{.start_dim = 0, .end_dim = -2};
  EXPECT_EQ(flatten(zeros({2, 3, 4})).sizes(), (Shape{6, 4}));
  EXPECT_THROW((nn::Flatten{.start_dim = 3}(zeros({2, 3}))), IndexError);
}

TEST(Flatten, HasNoParameters) { EXPECT_TRUE(parameters(nn::Flatten{}).empty()); }

}  // namespace flatten_test
}  // namespace lockstep
