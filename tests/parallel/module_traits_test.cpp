// SPDX-License-Identifier: Apache-2.0

// Modules and tensors of another library, whose devices are places of one memory.
#include <lockstep/module/module_traits.hpp>

#include <lockstep/parallel/criterion.hpp>
#include <lockstep/parallel/data_parallel.hpp>
#include <lockstep/parallel/parallel_apply.hpp>
#include <lockstep/parallel/replicate.hpp>
#include <lockstep/parallel/scatter_gather.hpp>
#include <lockstep/parallel/tensor_traits.hpp>

#include "support/expect_error.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

namespace ls = lockstep;
using ls::testing::throws;

namespace module_traits_test {

// Numbers that every host device can use.
struct Numbers {
  std::vector<double> values;
  bool scalar = false;
};

struct Scale {
  double factor;
  ls::Device device;
};
// The library's modules are pointers, as lockstep's are not.
using ScalePtr = std::shared_ptr<Scale>;

}  // namespace module_traits_test

template <>
struct ls::tensor_traits<module_traits_test::Numbers> {
  using Numbers = module_traits_test::Numbers;
  static bool defined(const Numbers&) { return true; }
  static Device device(const Numbers&) { return {}; }
  static bool is_on(const Numbers&, Device device) { return device.is_cpu(); }
  static std::int64_t dim(const Numbers& numbers) { return numbers.scalar ? 0 : 1; }
  static std::int64_t size(const Numbers& numbers, std::int64_t) {
    return static_cast<std::int64_t>(numbers.values.size());
  }
  static std::vector<Numbers> scatter(const Numbers& numbers, const std::vector<Device>&,
                                      const std::vector<std::int64_t>& sizes, std::int64_t) {
    std::vector<Numbers> parts;
    auto start = numbers.values.begin();
    for (const std::int64_t size : sizes) {
      parts.push_back({{start, start + size}});
      start += size;
    }
    return parts;
  }
  static std::vector<Numbers> broadcast(const Numbers&, const std::vector<Device>&) {
    throw std::logic_error("nothing here has to be moved");
  }
  static Numbers gather(const std::vector<Numbers>& parts, Device, std::int64_t) {
    Numbers whole;
    for (const Numbers& part : parts) {
      whole.values.insert(whole.values.end(), part.values.begin(), part.values.end());
    }
    return whole;
  }
  static Numbers weighted_sum(const std::vector<Numbers>& scalars,
                              const std::vector<double>& weights, Device) {
    double sum = 0;
    for (std::size_t i = 0; i < scalars.size(); ++i) sum += scalars[i].values[0] * weights[i];
    return {{sum}, true};
  }
};

template <>
struct ls::module_traits<module_traits_test::ScalePtr> {
  using ScalePtr = module_traits_test::ScalePtr;
  static module_traits_test::Numbers forward(const ScalePtr& scale,
                                             module_traits_test::Numbers numbers) {
    if (numbers.values.empty()) throw std::out_of_range("no numbers");
    for (double& value : numbers.values) value *= scale->factor;
    return numbers;
  }
  static std::optional<Device> device(const ScalePtr& scale) { return scale->device; }
  static std::vector<ScalePtr> replicate(const ScalePtr& scale, const std::vector<Device>& devices,
                                         bool detach) {
    std::vector<ScalePtr> replicas;
    for (const Device device : devices) {
      replicas.push_back(std::make_shared<module_traits_test::Scale>(
          module_traits_test::Scale{detach ? 0 : scale->factor, device}));
    }
    return replicas;
  }
};

namespace module_traits_test {

static_assert(ls::ForeignModule<ScalePtr>);
static_assert(!ls::ForeignModule<Scale> && !ls::ForeignModule<std::shared_ptr<int>>);

using Values = std::vector<double>;

TEST(ModuleTraits, ReplicateAndParallelApplyTakeModulesOfAnotherLibrary) {
  const auto scale = std::make_shared<Scale>(Scale{2, "cpu:0"});
  std::vector<ScalePtr> replicas = ls::replicate(scale, {"cpu:0", "cpu:1"});
  ASSERT_EQ(replicas.size(), 2u);
  const auto chunks = ls::scatter(Numbers{{1, 2, 3}}, {"cpu:0", "cpu:1"});
  const auto outputs = ls::parallel_apply(replicas, chunks, {"cpu:0", "cpu:1"});
  EXPECT_EQ(ls::gather(outputs, "cpu:0").values, (Values{2, 4, 6}));
  EXPECT_EQ(ls::replicate(scale, {"cpu:1"}, /*detach=*/true)[0]->factor, 0);
  EXPECT_TRUE(ls::replicate(scale, {}).empty());
}

TEST(ModuleTraits, ErrorsNameTheModulesDevice) {
  std::vector<ScalePtr> scales(2);
  scales[0] = std::make_shared<Scale>(Scale{2, "cpu:4"});
  scales[1] = std::make_shared<Scale>(Scale{2, "cpu:5"});
  EXPECT_TRUE(throws<std::out_of_range>(
      [&] {
        ls::parallel_apply(scales, std::vector{Numbers{{1}}, Numbers()});
      },
      "no numbers", "replica 1", "cpu:5"));
}

struct Double {
  Numbers forward(Numbers numbers) const {
    for (double& value : numbers.values) value *= 2;
    return numbers;
  }
};

// broadcast, which would move them, is an error above.
TEST(TensorTraits, WhatADeviceCanUseWhereItIsIsNotMoved) {
  const ls::DataParallel two{Double(), {"cpu:0", "cpu:1"}}, one{Double(), {"cpu:1"}};
  const auto chunks = ls::scatter(Numbers{{1, 2, 3}}, two.devices());
  EXPECT_EQ(two(chunks).values, (Values{2, 4, 6}));
  EXPECT_EQ(one(Numbers{{1, 2}}).values, (Values{2, 4}));
  EXPECT_EQ(one(ls::scatter(Numbers{{1, 2}}, one.devices())).values, (Values{2, 4}));
}

struct Sum {
  Numbers forward(const Numbers& a, const Numbers& b) const {
    return {{a.values[0] + b.values[0]}, true};
  }
};

TEST(TensorTraits, ACriterionTakesAnyTensorThatCanBeAddedUp) {
  const ls::Scattered<Numbers> outputs(std::vector{Numbers{{1, 1}}, Numbers{{7}}});
  const Numbers target{{1, 1, 1}};
  EXPECT_NEAR((ls::DataParallelCriterion<Sum>(Sum())(outputs, target).values[0]), 4, 1e-12);
  ls::DataParallelCriterion two_values{Double()};
  EXPECT_TRUE(throws<ls::ShapeError>([&] { two_values(outputs); }, "2 values", "single value"));
}

}  // namespace module_traits_test
