// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/parallel/data_parallel.hpp>
#include <lockstep/parallel/nested/scatterable.hpp>
#include <lockstep/parallel/scatter_gather.hpp>
#include <lockstep/parallel/tensor_traits.hpp>
#include <lockstep/tensor/creation.hpp>

#include "parallel/toy_tensor.hpp"
#include "support/devices.hpp"
#include "support/expect_error.hpp"
#include "support/gate.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <variant>
#include <vector>

namespace ls = lockstep;
using ls::testing::first_devices;
using ls::testing::throws;

namespace tensor_traits_test {

using ls::testing::Lines;
using ls::testing::Toy;

static_assert(ls::TensorLike<ls::Tensor> && ls::SummableTensor<ls::Tensor>);
static_assert(ls::TensorLike<Toy> && ls::SummableTensor<Toy>);
static_assert(ls::TensorLike<Lines> && !ls::SummableTensor<Lines>);
static_assert(!ls::TensorLike<double> && !ls::TensorLike<std::vector<Toy>>);

// What is refused of Tensors is refused of other leaves.
static_assert(ls::Scatterable<std::map<std::string, std::tuple<Toy, Lines, ls::Tensor>>>);
static_assert(!ls::Scatterable<std::deque<Toy>> && !ls::Scatterable<std::shared_ptr<Toy>>);
static_assert(ls::Scatterable<std::shared_ptr<int>>);

using Values = std::vector<double>;
using Dims = std::vector<std::int64_t>;

Toy rows(std::int64_t count, std::int64_t columns = 2, double first = 0) {
  Values values;
  for (std::int64_t i = 0; i < count * columns; ++i) {
    values.push_back(first + static_cast<double>(i));
  }
  return Toy(values, {count, columns});
}

ls::Tensor tensor_rows(std::int64_t count, std::int64_t columns = 2) {
  return ls::arange(count * columns, {.dtype = ls::Dtype::f64}).reshape({count, columns});
}

TEST(TensorTraits, ScatterDividesRows) {
  const auto chunks = ls::scatter(rows(5), first_devices(2));
  ASSERT_EQ(chunks.size(), 2U);
  EXPECT_EQ(chunks[0].values(), (Values{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(chunks[1].values(), (Values{6, 7, 8, 9}));
  EXPECT_EQ(chunks[1].dims(), (Dims{2, 2}));
  EXPECT_EQ(chunks[0].device(), ls::Device("cpu:0"));
  EXPECT_EQ(chunks[1].device(), ls::Device("cpu:1"));
}

TEST(TensorTraits, ScatterAndGatherAlongColumns) {
  const Toy toy = rows(2, 5);
  for (const std::int64_t dim : {1, -1}) {
    const auto chunks = ls::scatter(toy, first_devices(3), dim, ls::Split::sizes({2, 1, 2}));
    ASSERT_EQ(chunks.size(), 3U);
    EXPECT_EQ(chunks[0].values(), (Values{0, 1, 5, 6}));
    EXPECT_EQ(chunks[1].values(), (Values{2, 7}));
    EXPECT_EQ(chunks[2].values(), (Values{3, 4, 8, 9}));
    const Toy whole = ls::gather(chunks, "cpu", dim);
    EXPECT_EQ(whole.values(), toy.values());
    EXPECT_EQ(whole.dims(), toy.dims());
    EXPECT_EQ(whole.device(), ls::Device("cpu"));
  }
}

TEST(TensorTraits, WithoutDimensionsItGoesToEveryDevice) {
  const std::tuple inputs(rows(4), Toy({7}, {}));
  const auto parts = ls::scatter(inputs, first_devices(4));
  ASSERT_EQ(parts.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(std::get<0>(parts[i]).dims(), (Dims{1, 2}));
    EXPECT_EQ(std::get<1>(parts[i]).values(), Values{7});
    EXPECT_EQ(std::get<1>(parts[i]).dims(), Dims{});
    EXPECT_EQ(std::get<1>(parts[i]).device(), first_devices(4)[i]);
  }
}

TEST(TensorTraits, UndefinedStaysUndefined) {
  const auto parts = ls::scatter(std::tuple(Toy(), rows(2)), first_devices(2));
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_FALSE(std::get<0>(parts[0]).defined());
  EXPECT_FALSE(std::get<0>(parts[1]).defined());
  EXPECT_FALSE(std::get<0>(ls::gather(parts, "cpu")).defined());
}

enum class Mode { fast, exact };

struct Inner {
  std::optional<Toy> toy;
  std::variant<std::string, ls::Tensor> tensor;
};

struct Nested {
  std::map<std::string, std::vector<Toy>> named;
  std::array<Inner, 2> inner;
  Lines text;
  Mode mode = Mode::fast;
};

Nested nested(std::int64_t count) {
  const std::vector<std::string> words{"a", "b", "c", "d", "e", "f"};
  return {{{"x", {rows(count), rows(count, 1, 100)}}, {"none", {}}},
          {Inner{rows(count, 3, 200), tensor_rows(count)}, Inner{std::nullopt, "constant"}},
          Lines{{words.begin(), words.begin() + count}},
          Mode::exact};
}

TEST(TensorTraits, MixedLeavesInOneStructure) {
  const Nested whole = nested(5);
  const auto parts = ls::scatter(whole, first_devices(3));
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_EQ(parts[1].named.at("x")[1].values(), (Values{102, 103}));
  EXPECT_EQ(parts[1].inner[0].toy->values(), (Values{206, 207, 208, 209, 210, 211}));
  EXPECT_EQ(std::get<ls::Tensor>(parts[1].inner[0].tensor).to_vector<double>(),
            (Values{4, 5, 6, 7}));
  EXPECT_EQ(parts[1].text.lines, (std::vector<std::string>{"c", "d"}));
  EXPECT_EQ(parts[2].text.lines, (std::vector<std::string>{"e"}));
  for (const Nested& part : parts) {
    EXPECT_TRUE(part.named.at("none").empty());
    EXPECT_FALSE(part.inner[1].toy.has_value());
    EXPECT_EQ(std::get<std::string>(part.inner[1].tensor), "constant");
    EXPECT_EQ(part.mode, Mode::exact);
  }

  const Nested gathered = ls::gather(parts, "cpu:1");
  EXPECT_EQ(gathered.named.at("x")[0].values(), whole.named.at("x")[0].values());
  EXPECT_EQ(gathered.inner[0].toy->values(), whole.inner[0].toy->values());
  EXPECT_EQ(std::get<ls::Tensor>(gathered.inner[0].tensor).to_vector<double>(),
            tensor_rows(5).to_vector<double>());
  EXPECT_EQ(std::get<ls::Tensor>(gathered.inner[0].tensor).device(), ls::Device("cpu:1"));
  EXPECT_EQ(gathered.inner[0].toy->device(), ls::Device("cpu:1"));
  EXPECT_EQ(gathered.text.lines, whole.text.lines);
  EXPECT_EQ(gathered.mode, Mode::exact);
}

struct Pair {
  Toy toy;
  ls::Tensor tensor;
};

TEST(TensorTraits, LeavesOfTwoTypesThatDisagreeAreAnErrorThatNamesBoth) {
  EXPECT_TRUE(throws<ls::ValueError>(
      [] {
        ls::scatter(Pair{rows(4), tensor_rows(3)}, first_devices(2));
      },
      "inputs.toy has 4 rows", "inputs.tensor has 3"));
  EXPECT_TRUE(throws<ls::ValueError>(
      [] {
        ls::scatter(std::tuple(tensor_rows(3), Lines{{"a", "b"}}), first_devices(2));
      },
      "inputs[0] has 3 rows", "inputs[1] has 2"));
}

TEST(TensorTraits, ScatterKwargsDividesBothAlike) {
  const auto [inputs, named] =
      ls::scatter_kwargs(std::tuple(rows(3), 5), Pair{rows(3), tensor_rows(3)}, first_devices(2));
  ASSERT_EQ(inputs.size(), 2U);
  ASSERT_EQ(named.size(), 2U);
  EXPECT_EQ(std::get<0>(inputs[1]).values(), (Values{4, 5}));
  EXPECT_EQ(std::get<1>(inputs[1]), 5);
  EXPECT_EQ(named[1].toy.values(), (Values{4, 5}));
  EXPECT_EQ(named[1].tensor.to_vector<double>(), (Values{4, 5}));
}

// Scatter's backward gathers, gather's scatters, a copy's adds up: on the toy's own tape.
TEST(TensorTraits, GradientsFlowThroughScatterAndGather) {
  const Toy x = rows(5);
  const Toy factor({3}, {});
  const auto parts = ls::scatter(std::tuple(x, factor), first_devices(2));
  const auto cubes = [](const std::tuple<Toy, Toy>& part) {
    const Toy& chunk = std::get<0>(part);
    return chunk * chunk * chunk;
  };
  const Toy y = ls::gather(std::vector{cubes(parts[0]), cubes(parts[1])}, "cpu:1");
  const Toy factors = ls::gather(
      std::vector{std::get<1>(parts[0]) * std::get<1>(parts[0]), std::get<1>(parts[1])}, "cpu");
  Values weights;
  Values expected;
  for (std::size_t i = 0; i < 10; ++i) {
    weights.push_back(static_cast<double>(i % 3) + 1);
    expected.push_back(weights[i] * 3 * static_cast<double>(i * i));
  }
  y.backward(weights);
  EXPECT_EQ(x.grad(), expected);
  EXPECT_EQ(factor.grad(), Values{0});
  factors.backward({10, 1});  // 10 · 2 · 3 + 1
  EXPECT_EQ(factor.grad(), Values{61});
}

struct Square {
  Toy forward(const Toy& x) const { return x * x; }
  Pair forward(const Pair& x, const std::optional<Toy>& other, double scale) const {
    return {other ? x.toy * *other : x.toy, x.tensor * scale};
  }
  std::tuple<Toy, Lines> forward(const Nested& x) const {
    return {x.named.at("x")[0] * x.named.at("x")[0], x.text};
  }
};

TEST(TensorTraits, ParallelApply) {
  std::vector<Square> modules(3);
  const auto chunks = ls::scatter(rows(6), first_devices(3));
  const std::vector<Toy> outputs = ls::parallel_apply(modules, chunks, {"cpu:4", "cpu:1", "cpu:2"});
  ASSERT_EQ(outputs.size(), 3U);
  EXPECT_EQ(outputs[0].device(), ls::Device("cpu:4"));
  EXPECT_EQ(outputs[1].device(), ls::Device("cpu:1"));
  EXPECT_EQ(outputs[2].values(), (Values{64, 81, 100, 121}));
}

TEST(TensorTraits, DataParallelFunction) {
  Square module;
  const Toy x = rows(5);
  const Toy y = ls::data_parallel(module, std::tuple(x), first_devices(3), ls::Device("cpu"));
  EXPECT_EQ(y.device(), ls::Device("cpu"));
  EXPECT_EQ(y.values(), (x * x).values());
  y.backward(Values(10, 1));
  for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(x.grad()[i], 2 * x.values()[i]);
}

TEST(TensorTraits, DataParallelOverSeveralDevicesIsOverOne) {
  for (std::size_t count = 1; count <= 8; ++count) {
    SCOPED_TRACE(count);
    ls::DataParallel model{
        Square(), first_devices(count), {.output_device = "cpu:1", .split = ls::Split::balanced}};
    const Pair x{rows(5), tensor_rows(5).requires_grad_()};
    const Toy other = rows(5, 2, 10);
    const Pair y = model(x, std::optional(other), 3.0);
    EXPECT_EQ(y.toy.device(), ls::Device("cpu:1"));
    EXPECT_EQ(y.tensor.device(), ls::Device("cpu:1"));
    EXPECT_EQ(y.toy.values(), (x.toy * other).values());
    EXPECT_EQ(y.tensor.to_vector<double>(), (x.tensor * 3.0).to_vector<double>());

    y.toy.backward(Values(10, 1));
    ls::sum(y.tensor).backward();
    EXPECT_EQ(x.toy.grad(), other.values());
    EXPECT_EQ(other.grad(), x.toy.values());
    EXPECT_EQ(x.tensor.grad().to_vector<double>(), Values(10, 3));
  }
}

TEST(TensorTraits, DataParallelTakesAndReturnsNestedStructures) {
  ls::DataParallel model{Square(), first_devices(4)};
  const Nested whole = nested(6);
  const auto [toy, text] = model(whole);
  EXPECT_EQ(toy.values(), (whole.named.at("x")[0] * whole.named.at("x")[0]).values());
  EXPECT_EQ(text.lines, whole.text.lines);
  EXPECT_EQ(text.device, ls::Device("cpu:0"));
  EXPECT_TRUE(throws<ls::ValueError>(
      [&] {
        model(Pair{rows(4), tensor_rows(3)}, std::optional<Toy>(), 1.0);
      },
      "args[0].toy has 4 rows", "args[0].tensor has 3"));
}

TEST(TensorTraits, WhatIsScatteredAlreadyIsTakenAsItIs) {
  ls::DataParallel model{Square(), first_devices(2)};
  const auto chunks = ls::scatter(rows(5), model.devices());
  EXPECT_EQ(model(chunks).values(), (rows(5) * rows(5)).values());
}

TEST(TensorTraits, ScalarsBecomeAVectorOrASum) {
  const std::vector<Toy> scalars{Toy({1}, {}), Toy({2}, {}), Toy({6}, {})};
  const Toy list = ls::gather(scalars, "cpu:2");
  EXPECT_EQ(list.values(), (Values{1, 2, 6}));
  EXPECT_EQ(list.dims(), Dims{3});
  const Toy sum = ls::gather(scalars, "cpu:2", 0, ls::Reduction::sum);
  EXPECT_EQ(sum.values(), Values{9});
  EXPECT_EQ(sum.dims(), Dims{});
  EXPECT_EQ(sum.device(), ls::Device("cpu:2"));
  EXPECT_EQ(ls::gather(scalars, "cpu:2", 0, ls::Reduction::mean).values(), Values{3});
}

struct Mean {
  Toy forward(const Toy& x) const { return ls::testing::mean(x); }
};

TEST(TensorTraits, MeanOfChunksOfDifferentSizesIsTheBatchsMean) {
  const Toy x({1, 2, 3, 4, 15}, {5});
  ls::DataParallel model{Mean(), first_devices(2), {.scalar_outputs = ls::Reduction::mean}};
  const Toy loss = model(x);
  EXPECT_DOUBLE_EQ(loss.values()[0], 5);
  loss.backward({1});
  for (const double grad : x.grad()) EXPECT_DOUBLE_EQ(grad, 0.2);
}

// A mean of no rows is left out with its weight.
TEST(TensorTraits, AWeightedSumIsOfTheScalarsThatHaveAWeight) {
  const std::vector<Toy> scalars{Toy({1}, {}), Toy({NAN}, {}), Toy({3}, {})};
  const Toy sum = ls::detail::nested::weighted_sum(scalars, {0.5, 0, 0.5}, "cpu:1");
  EXPECT_EQ(sum.values(), Values{2});
}

TEST(TensorTraits, MemoryOfATensorStaysForTheStreamsItIsRecordedOn) {
  const ls::Device device("cpu:3");
  const ls::Stream copies = ls::copy_stream(device);
  copies.synchronize();
  ls::testing::Gate gate;
  gate.hold(copies);
  std::optional<ls::Tensor> first = ls::ones({1 << 16}, {.device = device});
  const void* const address = first->const_data_ptr<float>();
  ls::tensor_traits<ls::Tensor>::record_stream(*first, copies);
  first.reset();
  const ls::Tensor second = ls::ones({1 << 16}, {.device = device});
  EXPECT_NE(second.const_data_ptr<float>(), address);
}

TEST(TensorTraits, WithoutWeightedSumAReductionIsAnError) {
  const std::vector<Lines> parts{{{"a"}, true}, {{"b"}, true}};
  EXPECT_EQ(ls::gather(parts, "cpu").lines, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(throws<ls::ValueError>([&] { ls::gather(parts, "cpu", 0, ls::Reduction::sum); },
                                     "cannot be added up", "weighted_sum"));
}

}  // namespace tensor_traits_test
