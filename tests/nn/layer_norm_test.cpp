// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/concepts.hpp>
#include <lockstep/nn/layer_norm.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/reduce.hpp>

#include <gtest/gtest.h>

#include "nn/support.hpp"

namespace lockstep {
namespace layer_norm_test {

using testing::f32;
using testing::message_of;
using testing::Names;
using testing::parameter_names;
using testing::Values;
using testing::values_of;

static_assert(Module<nn::LayerNorm> && ForwardableWith<const nn::LayerNorm, Tensor>);

TEST(LayerNorm, HasTorchsShapesNamesAndFirstValues) {
  const nn::LayerNorm layer{{2, 3}};
  EXPECT_EQ(parameter_names(layer), (Names{"weight", "bias"}));
  EXPECT_EQ(layer.weight.sizes(), (Shape{2, 3}));
  EXPECT_EQ(values_of(layer.weight), Values(6, 1));
  EXPECT_EQ(values_of(layer.bias), Values(6, 0));
  EXPECT_EQ(nn::LayerNorm{5}.weight.sizes(), Shape{5});
  EXPECT_TRUE(parameter_names(nn::LayerNorm{5, {.elementwise_affine = false}}).empty());
  EXPECT_EQ(parameter_names(nn::LayerNorm{5, {.bias = false}}), Names{"weight"});
}

TEST(LayerNorm, ForwardAndGradientsByHand) {
  const nn::LayerNorm layer{2, {.eps = 0}};
  const Tensor y = layer(f32({1, 3, 8, 4}, {2, 2}));
  EXPECT_EQ(values_of(y), (Values{-1, 1, 1, -1}));
  sum(y * f32({1, 2, 3, 4}, {2, 2})).backward();
  EXPECT_EQ(values_of(layer.weight.grad()), (Values{2, -2}));
  EXPECT_EQ(values_of(layer.bias.grad()), (Values{4, 6}));
}

TEST(LayerNorm, RefusesBadArguments) {
  EXPECT_EQ(message_of<ValueError>([] { nn::LayerNorm{0}; }),
            "LayerNorm: expected each size of normalized_shape to be at least 1, got 0");
  EXPECT_THROW(nn::LayerNorm{Shape{}}, ValueError);
  EXPECT_THROW((nn::LayerNorm{2, {.eps = -1}}), ValueError);
  EXPECT_THROW((nn::LayerNorm{2, {.dtype = Dtype::i64}}), DtypeError);
  EXPECT_THROW(nn::LayerNorm{2}(zeros({2, 3})), ShapeError);
}

}  // namespace layer_norm_test
}  // namespace lockstep
