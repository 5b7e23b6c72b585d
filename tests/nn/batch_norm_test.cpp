// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/error.hpp>
#include <lockstep/module/module.hpp>
#include <lockstep/module/parameter.hpp>
#include <lockstep/nn/batch_norm.hpp>
#include <lockstep/nn/sequential.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/tensor/creation.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "nn/support.hpp"

namespace lockstep {
namespace batch_norm_test {

using testing::f32;
using testing::message_of;
using testing::Names;
using testing::parameter_names;
using testing::Values;
using testing::values_of;

static_assert(Module<nn::BatchNorm1d> && ForwardableWith<const nn::BatchNorm1d, Tensor>);
static_assert(Module<nn::BatchNorm2d> && ForwardableWith<const nn::BatchNorm2d, Tensor>);

template <class M>
Names state_names(const M& module) {
  Names names;
  for (const auto& entry : state_dict(module)) names.push_back(entry.name);
  return names;
}

TEST(BatchNorm1d, HasTorchsShapesNamesAndFirstValues) {
  const nn::BatchNorm1d layer{3};
  EXPECT_EQ(state_names(layer),
            (Names{"weight", "bias", "running_mean", "running_var", "num_batches_tracked"}));
  EXPECT_EQ(parameter_names(layer), (Names{"weight", "bias"}));
  EXPECT_TRUE(layer.training);
  EXPECT_EQ(values_of(layer.weight), (Values{1, 1, 1}));
  EXPECT_EQ(values_of(layer.bias), (Values{0, 0, 0}));
  EXPECT_EQ(values_of(layer.running_mean), (Values{0, 0, 0}));
  EXPECT_EQ(values_of(layer.running_var), (Values{1, 1, 1}));
  EXPECT_EQ(layer.num_batches_tracked.sizes(), Shape{});
  EXPECT_EQ(layer.num_batches_tracked.dtype(), Dtype::i64);
  EXPECT_EQ(layer.num_batches_tracked.item<std::int64_t>(), 0);
}

// As files of torch before 0.4.1 have it.
TEST(BatchNorm1d, LoadsAStateWithoutNumBatchesTracked) {
  const nn::Sequential net{nn::BatchNorm1d{1}};
  StateDict dict = state_dict(nn::Sequential{nn::BatchNorm1d{1}});
  dict.pop_back();
  for (const NamedTensor& entry : dict) entry.tensor.fill_(3);
  const LoadResult result = load_state_dict(net, dict);
  EXPECT_EQ(result.missing, Names{});
  EXPECT_EQ(values_of(state_dict(net)[3].tensor), Values{3});
  dict.pop_back();
  EXPECT_THROW(load_state_dict(net, dict), ModuleError);
}

TEST(BatchNorm1d, TrainsAndThenUsesWhatItHasSeen) {
  nn::BatchNorm1d layer{1, {.eps = 0, .momentum = 0.5, .dtype = Dtype::f64}};
  const Tensor x = from_values(Values{1, 3}, {2, 1});
  EXPECT_EQ(values_of(layer(x)), (Values{-1, 1}));
  EXPECT_EQ(values_of(layer.running_mean), Values{1});
  EXPECT_EQ(values_of(layer.running_var), Values{1.5});  // (1 + 2) / 2
  EXPECT_EQ(layer.num_batches_tracked.item<std::int64_t>(), 1);
  eval(layer);
  EXPECT_FALSE(layer.training);
  layer.running_var.fill_(4);
  EXPECT_EQ(values_of(layer(x)), (Values{0, 1}));
  EXPECT_EQ(layer.num_batches_tracked.item<std::int64_t>(), 1);
}

TEST(BatchNorm1d, CountsItsBatches) {
  nn::BatchNorm1d layer{1, {.dtype = Dtype::f64}};
  const std::uint64_t version = layer.num_batches_tracked.version();
  layer(from_values(Values{1, 3}, {2, 1}));
  EXPECT_GT(layer.num_batches_tracked.version(), version);
  layer(zeros({0, 1}, {.dtype = Dtype::f64}));
  EXPECT_EQ(layer.num_batches_tracked.item<std::int64_t>(), 2);
  layer.num_batches_tracked = Buffer(full({}, 7, {.dtype = Dtype::f32, .device = "cpu:1"}));
  layer(from_values(Values{1, 3}, {2, 1}));
  EXPECT_EQ(layer.num_batches_tracked.item(), 8) << "wherever it is";
  EXPECT_THROW(layer(from_values(Values{1}, {1, 1})), ValueError);
  EXPECT_EQ(layer.num_batches_tracked.item(), 8);
}

TEST(BatchNorm1d, TakesALength) {
  const nn::BatchNorm1d layer{2, {.eps = 0}};
  EXPECT_EQ(values_of(layer(f32({1, 3, 5, 5, 3, 1, 7, 7}, {2, 2, 2}))),
            (Values{-1, 1, -1, -1, 1, -1, 1, 1}));
}

TEST(BatchNorm2d, NormalisesEachPlane) {
  const nn::BatchNorm2d layer{2, {.eps = 0}};
  EXPECT_EQ(values_of(layer(f32({1, 3, 3, 1, 5, 5, 7, 7}, {1, 2, 2, 2}))),
            (Values{-1, 1, 1, -1, -1, -1, 1, 1}));
}

TEST(BatchNorm2d, GradientsByHand) {
  const nn::BatchNorm2d layer{1, {.eps = 0}};
  const Tensor x = f32({1, 3, 3, 1}, {1, 1, 2, 2});
  sum(layer(x) * f32({1, 2, 3, 4}, {1, 1, 2, 2})).backward();
  EXPECT_EQ(values_of(layer.weight.grad()), Values{0});  // −1 + 2 + 3 − 4
  EXPECT_EQ(values_of(layer.bias.grad()), Values{10});
}

TEST(BatchNorm2d, CanGoWithoutParametersAndWithoutBuffers) {
  const nn::BatchNorm2d plain{2, {.affine = false}};
  EXPECT_EQ(state_names(plain), (Names{"running_mean", "running_var", "num_batches_tracked"}));
  nn::BatchNorm2d untracked{1, {.eps = 0, .track_running_stats = false}};
  EXPECT_EQ(state_names(untracked), (Names{"weight", "bias"}));
  const Tensor x = f32({1, 3}, {1, 1, 1, 2});
  EXPECT_EQ(values_of(untracked(x)), (Values{-1, 1}));
  eval(untracked);
  EXPECT_EQ(values_of(untracked(x)), (Values{-1, 1})) << "the batch's, for want of others";
}

TEST(BatchNorm2d, IsFoundWithinOtherModules) {
  nn::Sequential net{nn::BatchNorm2d{2}, nn::BatchNorm2d{2, {.affine = false}}};
  EXPECT_EQ(parameter_names(net), (Names{"0.weight", "0.bias"}));
  eval(net);
  EXPECT_FALSE(net.get<0>().training || net.get<1>().training);
  EXPECT_EQ(net(zeros({1, 2, 1, 1})).sizes(), (Shape{1, 2, 1, 1}));
}

TEST(BatchNorm2d, RefusesInputsOfOtherShapes) {
  const nn::BatchNorm2d images{3};
  const nn::BatchNorm1d rows{3};
  const std::string text = message_of<ShapeError>([&] { images(zeros({2, 4, 5, 5})); });
  EXPECT_NE(text.find("[batch, channels, height, width] with 3 channels, got [2, 4, 5, 5]"),
            std::string::npos)
      << text;
  EXPECT_THROW(images(zeros({2, 3})), ShapeError);
  EXPECT_THROW(rows(zeros({2, 3, 1, 1})), ShapeError);
  EXPECT_THROW(rows(zeros({3})), ShapeError);
  EXPECT_THROW(rows(zeros({2, 3}, {.device = "cpu:1"})), DeviceError);
}

TEST(BatchNorm2d, RefusesBadArguments) {
  EXPECT_EQ(message_of<ValueError>([] { nn::BatchNorm2d{0}; }),
            "BatchNorm2d: expected num_features to be at least 1, got 0");
  EXPECT_EQ(message_of<ValueError>([] {
              nn::BatchNorm1d{2, {.momentum = 1.5}};
            }),
            "BatchNorm1d: expected a momentum from 0 to 1, got 1.5");
  for (const double momentum : {0, 1}) {
    EXPECT_NO_THROW((nn::BatchNorm1d{2, {.momentum = momentum}}));
  }
  EXPECT_THROW((nn::BatchNorm1d{2, {.eps = -1}}), ValueError);
  EXPECT_THROW((nn::BatchNorm1d{2, {.dtype = Dtype::i64}}), DtypeError);
}

}  // namespace batch_norm_test
}  // namespace lockstep
