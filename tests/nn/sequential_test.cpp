// SPDX-License-Identifier: Apache-2.0
#include <lockstep/module/module.hpp>
#include <lockstep/nn/activation.hpp>
#include <lockstep/nn/conv.hpp>
#include <lockstep/nn/flatten.hpp>
#include <lockstep/nn/linear.hpp>
#include <lockstep/nn/pooling.hpp>
#include <lockstep/nn/sequential.hpp>

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "nn/support.hpp"

namespace lockstep {
namespace sequential_test {

using testing::f32;
using testing::Names;
using testing::parameter_names;
using testing::Values;
using testing::values_of;

// Takes two tensors and needs to be changed to run.
struct CountingSum {
  int calls = 0;
  Tensor forward(const Tensor& a, const Tensor& b) {
    ++calls;
    return a + b;
  }
};

using Mlp = nn::Sequential<nn::Linear, nn::ReLU, nn::Linear>;
static_assert(Module<Mlp> && ForwardableWith<Mlp, Tensor> && ForwardableWith<const Mlp, Tensor>);

TEST(Sequential, NamesModulesByTheirPlaces) {
  const nn::Sequential net{nn::Linear{4, 8}, nn::ReLU{}, nn::Linear{8, 2, {.bias = false}}};
  EXPECT_EQ(parameter_names(net), (Names{"0.weight", "0.bias", "2.weight"}));
}

TEST(Sequential, NamesNestedModules) {
  struct Net {
    nn::Sequential<nn::Conv2d, nn::Sequential<nn::ReLU, nn::Linear>> features{
        nn::Conv2d{1, 2, 3}, nn::Sequential{nn::ReLU{}, nn::Linear{8, 2}}};
    nn::Linear head{2, 2};
    Tensor forward(const Tensor& x) { return x; }
  };
  EXPECT_EQ(parameter_names(Net{}),
            (Names{"features.0.weight", "features.0.bias", "features.1.1.weight",
                   "features.1.1.bias", "head.weight", "head.bias"}));
}

TEST(Sequential, CountsPastNine) {
  using R = nn::ReLU;
  const nn::Sequential net{R{}, R{}, R{}, R{}, R{}, R{}, R{}, R{}, R{}, R{}, nn::Linear{1, 1}};
  EXPECT_EQ(parameter_names(net), (Names{"10.weight", "10.bias"}));
}

TEST(Sequential, ShowsEveryModuleInside) {
  nn::Sequential net{nn::Conv2d{1, 2, 3}, nn::ReLU{}, nn::MaxPool2d{2}, nn::Flatten{}};
  Names paths;
  for_each_module(net, [&](const std::string& path, auto&) { paths.push_back(path); });
  EXPECT_EQ(paths, (Names{"", "0", "1", "2", "3"}));
}

// [1, −1] → fc [1, −1] + [0, −1] = [1, −2] → relu [1, 0] → sum with weights [3, 5], plus 1.
TEST(Sequential, ForwardByHand) {
  nn::Sequential net{nn::Linear{2, 2}, nn::ReLU{}, nn::Linear{2, 1}};
  net.get<0>().weight = Parameter(f32({1, 0, 0, 1}, {2, 2}));
  net.get<0>().bias = Parameter(f32({0, -1}, {2}));
  net.get<2>().weight = Parameter(f32({3, 5}, {1, 2}));
  net.get<2>().bias = Parameter(f32({1}, {1}));
  const Tensor x = f32({1, -1}, {1, 2});
  EXPECT_EQ(values_of(net(x)), Values{4});
  const auto& constant = net;
  EXPECT_EQ(values_of(constant.forward(x)), Values{4});
  EXPECT_EQ(net.size(), 3U);
}

TEST(Sequential, RunsAConvolutionalNetwork) {
  nn::Sequential net{
      nn::Conv2d{1, 4, 5}, nn::ReLU{},       nn::MaxPool2d{2}, nn::Conv2d{4, 8, 5},
      nn::Tanh{},          nn::MaxPool2d{2}, nn::Flatten{},    nn::Linear{8 * 4 * 4, 10},
      nn::Sigmoid{}};
  EXPECT_EQ(net(zeros({3, 1, 28, 28})).sizes(), (Shape{3, 10}));
}

TEST(Sequential, TheFirstModuleTakesAnyNumberOfArguments) {
  nn::Sequential net{CountingSum{}, nn::ReLU{}};
  EXPECT_EQ(values_of(net(f32({1, -5}, {2}), f32({2, 1}, {2}))), (Values{3, 0}));
  EXPECT_EQ(net.get<0>().calls, 1);
}

TEST(Sequential, TakesLambdas) {
  nn::Sequential net{nn::Linear{2, 2}, [](const Tensor& x) { return relu(x); }};
  EXPECT_EQ(net(zeros({1, 2})).sizes(), (Shape{1, 2}));
  EXPECT_EQ(parameter_names(net), (Names{"0.weight", "0.bias"}));
}

TEST(Sequential, ACopySharesItsParameters) {
  const nn::Sequential net{nn::Linear{2, 2}, nn::ReLU{}};
  const auto copy = net;
  EXPECT_TRUE(copy.get<0>().weight.is_same(net.get<0>().weight));
}

TEST(Sequential, MovesToADevice) {
  nn::Sequential net{nn::Linear{2, 2}, nn::ReLU{}};
  to(net, "cpu:1");
  EXPECT_EQ(net.get<0>().bias.device(), Device("cpu:1"));
  EXPECT_EQ(net(zeros({1, 2}, {.device = "cpu:1"})).device(), Device("cpu:1"));
}

TEST(Sequential, LoadsItsStateByName) {
  const nn::Sequential from{nn::Linear{2, 2}, nn::ReLU{}, nn::Linear{2, 1}};
  nn::Sequential into{nn::Linear{2, 2}, nn::ReLU{}, nn::Linear{2, 1}};
  load_state_dict(into, state_dict(from));
  EXPECT_EQ(values_of(into.get<2>().weight), values_of(from.get<2>().weight));
}

}  // namespace sequential_test
}  // namespace lockstep
