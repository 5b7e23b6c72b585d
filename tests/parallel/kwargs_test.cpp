// SPDX-License-Identifier: Apache-2.0
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/parallel/data_parallel.hpp>

#include "parallel/layers.hpp"
#include "support/devices.hpp"
#include "support/expect_error.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

namespace ls = lockstep;
using ls::testing::first_devices;
using ls::testing::throws;

namespace kwargs_test {

ls::Tensor rows(std::int64_t count) {
  return ls::arange(count * 2, {.dtype = ls::Dtype::f64}).reshape({count, 2});
}

struct Options {
  ls::Tensor data = {};
  double scale = 1;
  std::vector<ls::Tensor> unused = {};
};

struct Module {
  ls::Tensor forward(const ls::Tensor& x, const Options& options) const {
    return x * options.scale + (options.data.defined() ? options.data : x * 0.0);
  }
  ls::Tensor forward(const Options& options) const { return options.data * options.scale; }
  ls::Tensor forward(const ls::KwargsMap& named) const {
    return std::get<ls::Tensor>(named.at("data")) * std::get<double>(named.at("scale"));
  }
};

TEST(Kwargs, K01PositionalOnly) {
  const auto [inputs, named] = ls::scatter_kwargs(std::tuple(rows(4)), Options{}, first_devices(2));
  ASSERT_EQ(inputs.size(), 2U);
  ASSERT_EQ(named.size(), 2U);
  EXPECT_EQ(std::get<0>(inputs[1]).size(0), 2);
  EXPECT_FALSE(named[1].data.defined());
}

TEST(Kwargs, K02KeywordsOnly) {
  const auto [inputs, named] =
      ls::scatter_kwargs(std::tuple<>(), Options{.data = rows(4)}, first_devices(2));
  ASSERT_EQ(inputs.size(), 2U);
  ASSERT_EQ(named.size(), 2U);
  EXPECT_EQ(named[1].data.size(0), 2);
  ls::DataParallel model{Module{}, first_devices(2)};
  EXPECT_EQ(model(ls::kwargs(Options{.data = rows(4), .scale = 3})).to_vector<double>(),
            (rows(4) * 3.0).to_vector<double>());
}

TEST(Kwargs, K05AConstantFollowsTheNumberOfChunks) {
  ls::DataParallel model{Module{}, first_devices(4)};
  const ls::Tensor y = model(rows(9), ls::kwargs(Options{.scale = 2}));
  EXPECT_EQ(y.to_vector<double>(), (rows(9) * 2.0).to_vector<double>());
}

TEST(Kwargs, K06ATensorOfAnotherLengthIsNamed) {
  ls::DataParallel model{Module{}, first_devices(2)};
  EXPECT_TRUE(throws<ls::ValueError>([&] { model(rows(4), ls::kwargs(Options{.data = rows(1)})); },
                                     "kwargs.data has 1", "args[0] has 4"));
}

TEST(Kwargs, K08AnEmptyListAmongThem) {
  ls::DataParallel model{Module{}, first_devices(2)};
  EXPECT_EQ(model(ls::kwargs(Options{.data = rows(20), .unused = {}})).to_vector<double>(),
            rows(20).to_vector<double>());
}

TEST(Kwargs, ARunTimeMap) {
  ls::DataParallel model{Module{}, first_devices(2)};
  const ls::KwargsMap named = {{"data", rows(5)}, {"scale", 2.0}};
  EXPECT_EQ(model(ls::kwargs(named)).to_vector<double>(), (rows(5) * 2.0).to_vector<double>());
}

TEST(Kwargs, OneDeviceOrNoneTakesThemToo) {
  const auto named = ls::kwargs(Options{.scale = 2});
  const std::vector<double> twice = (rows(3) * 2.0).to_vector<double>();
  EXPECT_EQ((ls::DataParallel{Module{}, first_devices(1)}(rows(3), named)).to_vector<double>(),
            twice);
  const ls::DataParallel model{Module{}, std::nullopt};
  EXPECT_EQ(model(rows(3), named).to_vector<double>(), twice);
  EXPECT_EQ(model.output_device(), ls::Device());
}

TEST(Kwargs, P03KeywordsOfAnotherNumber) {
  std::vector<Module> modules(2);
  const std::vector<ls::Tensor> inputs(2, rows(2));
  const std::vector<Options> named(1);
  EXPECT_TRUE(
      throws<ls::ValueError>([&] { ls::parallel_apply(modules, inputs, named, first_devices(2)); },
                             "number of modules 2", "number of kwargs_tup 1"));
}

TEST(Kwargs, ParallelApplyTakesThemWithoutDevices) {
  std::vector<Module> modules(2);
  const std::vector<ls::Tensor> inputs = {rows(1).to("cpu:1"), rows(2).to("cpu:3")};
  const std::vector<Options> named = {{.scale = 2}, {.scale = 3}};
  const std::vector<ls::Tensor> outputs = ls::parallel_apply(modules, inputs, named);
  for (std::size_t i = 0; i < modules.size(); ++i) {
    EXPECT_EQ(outputs[i].device(), inputs[i].device());  // where it was made
    EXPECT_EQ(outputs[i].to_vector<double>(), (inputs[i] * named[i].scale).to_vector<double>());
  }
  const auto [parts, named_parts] = ls::scatter_kwargs(
      std::tuple(rows(4)), Options{.data = rows(4), .scale = 2}, first_devices(2));
  const std::vector<ls::Tensor> scattered = ls::parallel_apply(modules, parts, named_parts);
  EXPECT_EQ(scattered[1].device(), ls::Device("cpu:1"));
  EXPECT_EQ(scattered[1].to_vector<double>(), (std::vector<double>{12, 15, 18, 21}));
}

}  // namespace kwargs_test
