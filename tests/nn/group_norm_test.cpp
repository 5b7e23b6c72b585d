// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/concepts.hpp>
#include <lockstep/nn/group_norm.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/reduce.hpp>

#include <gtest/gtest.h>

#include "nn/support.hpp"

namespace lockstep {
namespace group_norm_test {

using testing::f32;
using testing::message_of;
using testing::Names;
using testing::parameter_names;
using testing::Values;
using testing::values_of;

static_assert(Module<nn::GroupNorm> && ForwardableWith<const nn::GroupNorm, Tensor>);

TEST(GroupNorm, HasTorchsShapesNamesAndFirstValues) {
  const nn::GroupNorm layer{2, 6};
  EXPECT_EQ(parameter_names(layer), (Names{"weight", "bias"}));
  EXPECT_EQ(layer.weight.sizes(), Shape{6});
  EXPECT_EQ(values_of(layer.weight), Values(6, 1));
  EXPECT_EQ(values_of(layer.bias), Values(6, 0));
  EXPECT_TRUE(parameter_names(nn::GroupNorm{2, 6, {.affine = false}}).empty());
}

TEST(GroupNorm, ForwardAndGradientsByHand) {
  const nn::GroupNorm layer{2, 4, {.eps = 0}};
  const Tensor y = layer(f32({1, 3, 8, 4}, {1, 4}));
  EXPECT_EQ(values_of(y), (Values{-1, 1, 1, -1}));
  sum(y * f32({1, 2, 3, 4}, {1, 4})).backward();
  EXPECT_EQ(values_of(layer.weight.grad()), (Values{-1, 2, 3, -4}));
  EXPECT_EQ(values_of(layer.bias.grad()), (Values{1, 2, 3, 4}));
}

TEST(GroupNorm, RefusesBadArguments) {
  EXPECT_EQ(message_of<ValueError>([] {
              nn::GroupNorm{4, 6};
            }),
            "GroupNorm: 6 channels cannot be divided into 4 groups");
  EXPECT_THROW((nn::GroupNorm{0, 6}), ValueError);
  EXPECT_THROW((nn::GroupNorm{2, 0}), ValueError);
  EXPECT_THROW((nn::GroupNorm{2, 4, {.eps = -1}}), ValueError);
  EXPECT_THROW((nn::GroupNorm{2, 4, {.dtype = Dtype::i64}}), DtypeError);
  EXPECT_THROW((nn::GroupNorm{2, 4}(zeros({2, 6}))), ShapeError);
}

}  // namespace group_norm_test
}  // namespace lockstep
