// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/parallel/comm.hpp>
#include <lockstep/parallel/scatter_gather.hpp>
#include <lockstep/tensor/creation.hpp>

#include "support/devices.hpp"
#include "support/expect_error.hpp"
#include "support/warnings.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace ls = lockstep;
using ls::testing::CaughtWarnings;
using ls::testing::first_devices;
using ls::testing::throws;

namespace scatter_gather_test {

using Values = std::vector<double>;

ls::Tensor rows(std::int64_t count, std::int64_t width = 2) {
  return ls::arange(count * width, {.dtype = ls::Dtype::f64}).reshape({count, width});
}

std::vector<std::int64_t> row_counts(const ls::Scattered<ls::Tensor>& chunks) {
  std::vector<std::int64_t> counts;
  for (const ls::Tensor& chunk : chunks) counts.push_back(chunk.size(0));
  return counts;
}

void expect_rows_in_order(const ls::Tensor& whole, const ls::Scattered<ls::Tensor>& chunks) {
  Values seen;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    EXPECT_EQ(chunks[i].device(), ls::Device(ls::DeviceType::cpu, static_cast<int>(i)));
    for (const double value : chunks[i].to_vector<double>()) seen.push_back(value);
  }
  EXPECT_EQ(seen, whole.to_vector<double>());
}

using Counts = std::vector<std::int64_t>;

// Maps of one type whose comparators differ.
TEST(Gather, MapsWithAnOrderEachAreGatheredByKey) {
  using Map = std::map<int, ls::Tensor, std::function<bool(int, int)>>;
  Map ascending(std::less<int>{});
  Map descending(std::greater<int>{});
  for (const int key : {1, 2}) {
    ascending[key] = ls::full({1}, key);
    descending[key] = ls::full({1}, key);
  }
  const Map gathered = ls::gather(std::vector<Map>{ascending, descending}, "cpu:0");
  EXPECT_EQ(gathered.at(1).to_vector<float>(), (std::vector<float>{1, 1}));
  EXPECT_EQ(gathered.at(2).to_vector<float>(), (std::vector<float>{2, 2}));
}

TEST(Scatter, S01TenRowsOverThree) {
  const ls::Tensor x = rows(10);
  const auto chunks = ls::scatter(x, first_devices(3));
  EXPECT_EQ(row_counts(chunks), (Counts{4, 4, 2}));
  expect_rows_in_order(x, chunks);
}
TEST(Scatter, S02FifteenRowsOverTwo) {
  EXPECT_EQ(row_counts(ls::scatter(rows(15), first_devices(2))), (Counts{8, 7}));
}
TEST(Scatter, S03OneRowIsOneChunkOnTheFirstDevice) {
  const auto chunks = ls::scatter(rows(1), first_devices(2));
  EXPECT_EQ(row_counts(chunks), (Counts{1}));
  EXPECT_EQ(chunks[0].device(), ls::Device("cpu:0"));
}
TEST(Scatter, S04FiveRowsOverFourAreThreeChunks) {
  EXPECT_EQ(row_counts(ls::scatter(rows(5), first_devices(4))), (Counts{2, 2, 1}));
}
TEST(Scatter, S06ThirtySixRowsOverSevenAreSixChunks) {
  EXPECT_EQ(row_counts(ls::scatter(rows(36), first_devices(7))), (Counts{6, 6, 6, 6, 6, 6}));
}
TEST(Scatter, S07TwelveRowsOverFiveAreFourChunks) {
  EXPECT_EQ(row_counts(ls::scatter(rows(12), first_devices(5))), (Counts{3, 3, 3, 3}));
}
TEST(Scatter, S09HundredRowsOverEight) {
  EXPECT_EQ(row_counts(ls::scatter(rows(100), first_devices(8))),
            (Counts{13, 13, 13, 13, 13, 13, 13, 9}));
}
TEST(Scatter, S11NoRowsAreAnEmptyChunkForEachDevice) {
  EXPECT_EQ(row_counts(ls::scatter(rows(0), first_devices(3))), (Counts{0, 0, 0}));
}
TEST(Scatter, S11ChunksOfNothingMayBeOfAnySizes) {
  constexpr std::int64_t kLarge = std::int64_t{1} << 62;
  for (const ls::Shape& shape : {ls::Shape{0, kLarge, kLarge}, ls::Shape{2, kLarge, kLarge, 0}}) {
    const auto chunks = ls::scatter(ls::zeros(shape), first_devices(2));
    EXPECT_EQ(ls::gather(chunks, "cpu").sizes(), shape);
  }
  const auto views = ls::scatter(ls::zeros({6, kLarge, 2, 0}, {.device = "cpu:1"}), {0, 1});
  EXPECT_EQ(views[1].sizes(), (ls::Shape{3, kLarge, 2, 0}));
}
TEST(Scatter, S12AlongAnInnerDimension) {
  const ls::Tensor x = rows(6, 4).reshape({2, 3, 4});
  const auto chunks = ls::scatter(x, first_devices(2), 1);
  EXPECT_EQ(chunks[0].sizes(), (ls::Shape{2, 2, 4}));
  EXPECT_EQ(chunks[1].sizes(), (ls::Shape{2, 1, 4}));
  EXPECT_EQ(chunks[1].to_vector<double>(), (Values{8, 9, 10, 11, 20, 21, 22, 23}));
  EXPECT_EQ(ls::gather(chunks, "cpu", 1).to_vector<double>(), x.to_vector<double>());
}
TEST(Scatter, S14NegativeDimCountsFromTheEnd) {
  const auto chunks = ls::scatter(rows(4, 4), first_devices(2), -2);
  EXPECT_EQ(row_counts(chunks), (Counts{2, 2}));
}
TEST(Scatter, S15DimOutOfRangeNamesTheRange) {
  EXPECT_TRUE(
      throws<ls::IndexError>([] { ls::scatter(rows(4, 4), first_devices(2), 5); }, "[-2, 1]", "5"));
}
TEST(Scatter, S16ATensorWithoutDimensionsGoesToEveryDevice) {
  const ls::Tensor x = ls::scalar_tensor(3.0);
  x.requires_grad_();
  const auto copies = ls::scatter(x, first_devices(2));
  ASSERT_EQ(copies.size(), 2U);
  EXPECT_EQ(copies[1].device(), ls::Device("cpu:1"));
  EXPECT_EQ(copies[1].item(), 3.0);
  ls::gather(copies, "cpu").sum().backward();
  EXPECT_EQ(x.grad().item(), 2.0);
}
TEST(Scatter, S17ExplicitSizes) {
  const auto chunks = ls::comm::scatter(rows(6, 4), first_devices(2), {2, 4});
  EXPECT_EQ(chunks[0].size(0), 2);
  EXPECT_EQ(chunks[1].size(0), 4);
  EXPECT_EQ(chunks[1].const_data_ptr<double>()[0], 8.0);
}
TEST(Scatter, S18SizesMustSumToTheRows) {
  EXPECT_TRUE(throws<ls::ValueError>(
      [] {
        ls::comm::scatter(rows(6), first_devices(2), {2, 3});
      },
      "sum to 6", "5"));
}
TEST(Scatter, S19SizesMustBeAsManyAsDevices) {
  EXPECT_TRUE(throws<ls::ValueError>(
      [] {
        ls::comm::scatter(rows(6), first_devices(3), {2, 4});
      },
      "same length"));
}
TEST(Scatter, S21SizesMustNotBeNegative) {
  EXPECT_TRUE(throws<ls::ValueError>(
      [] {
        ls::comm::scatter(rows(6), first_devices(2), {-1, 7});
      },
      "non-negative"));
}
TEST(Scatter, S22NoDevices) {
  EXPECT_TRUE(throws<ls::ValueError>([] { ls::scatter(rows(4), {}); }, "at least one device"));
}
TEST(Scatter, S23AChunkForTheTensorsOwnDeviceIsAView) {
  const ls::Tensor x = rows(4).to(ls::Device("cpu:0"));
  const auto chunks = ls::scatter(x, first_devices(2));
  EXPECT_EQ(chunks[0].const_data_ptr<double>(), x.const_data_ptr<double>());
}
TEST(Scatter, S24AChunkThatContributesNothingCountsAsZeros) {
  const ls::Tensor x = rows(4, 4);
  x.requires_grad_();
  const auto chunks = ls::scatter(x, first_devices(2));
  chunks[0].backward(ls::full({2, 4}, 2, chunks[0].options()));
  EXPECT_EQ(x.grad().to_vector<double>(), (Values{2, 2, 2, 2, 2, 2, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0}));
}
TEST(Scatter, S25TheGradientLivesOnTheInputsDevice) {
  for (const ls::Device device : {ls::Device("cpu"), ls::Device("cpu:1")}) {
    const ls::Tensor x = ls::ones({10}, {.dtype = ls::Dtype::f64, .device = device});
    x.requires_grad_();
    const auto chunks = ls::scatter(x, first_devices(2));
    const ls::Tensor sum = chunks[0] + chunks[1].to(ls::Device("cpu:0"));
    sum.backward(ls::ones_like(sum));
    EXPECT_EQ(x.grad().device(), device);
    EXPECT_EQ(x.grad().sum().item(), 10.0);
  }
}

struct Record {
  ls::Tensor a;
  int b;
};

TEST(Scatter, S26NestedStructures) {
  using List = std::tuple<ls::Tensor, std::string>;
  using Input = std::tuple<ls::Tensor, List, std::optional<ls::Tensor>>;
  const auto parts = ls::scatter(Input{rows(4), {rows(4), "s"}, {}}, first_devices(2));
  ASSERT_EQ(parts.size(), 2U);
  for (const Input& part : parts) {
    EXPECT_EQ(std::get<0>(part).size(0), 2);
    EXPECT_EQ(std::get<0>(std::get<1>(part)).size(0), 2);
    EXPECT_EQ(std::get<1>(std::get<1>(part)), "s");
    EXPECT_FALSE(std::get<2>(part).has_value());
  }
}
TEST(Scatter, S27APlainStruct) {
  const auto parts = ls::scatter(Record{rows(4), 3}, first_devices(2));
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[1].a.size(0), 2);
  EXPECT_EQ(parts[1].b, 3);
}
TEST(Scatter, S29AConstantFollowsTheNumberOfChunks) {
  const auto parts = ls::scatter(std::pair(rows(1), 7), first_devices(2));
  ASSERT_EQ(parts.size(), 1U);
  EXPECT_EQ(parts[0].second, 7);
}
TEST(Scatter, S30AnOpaqueObjectIsTheSameForAll) {
  const auto object = std::make_shared<int>(5);
  const auto parts = ls::scatter(object, first_devices(2));
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[0].get(), object.get());
  EXPECT_EQ(parts[1].get(), object.get());
}
TEST(Scatter, ALeafWithoutTheDimensionIsAnErrorThatNamesIt) {
  const std::tuple input(rows(4, 4), ls::ones({4}));
  EXPECT_TRUE(throws<ls::IndexError>([&] { ls::scatter(input, first_devices(2), 1); },
                                     "inputs[1] cannot be divided along dim 1", "[-1, 0]"));
  const std::vector<ls::Device> device = first_devices(1);
  const std::tuple parts(ls::Scattered<ls::Tensor>({ls::ones({2}, {.device = device[0]})}));
  EXPECT_TRUE(throws<ls::IndexError>([&] { ls::scatter_kwargs(parts, 0, device, 1); },
                                     "args[0] cannot be divided along dim 1"));
}
TEST(Scatter, LeavesThatDisagreeAreAnErrorThatNamesBoth) {
  using Input = std::tuple<ls::Tensor, std::map<std::string, ls::Tensor>>;
  EXPECT_TRUE(throws<ls::ValueError>(
      [] {
        ls::scatter(Input{rows(4), {{"mask", rows(3)}}}, first_devices(2));
      },
      "inputs[0] has 4", "inputs[1].mask has 3"));
}
TEST(Scatter, EveryKindOfStructure) {
  using Choice = std::variant<int, ls::Tensor>;
  struct All {
    std::vector<ls::Tensor> list;
    std::array<ls::Tensor, 2> pair;
    std::unordered_map<std::string, ls::Tensor> map;
    Choice choice;
    std::vector<Choice> choices;
    std::optional<Record> record;
  };
  const All all{
      {rows(5), rows(5, 3)}, {rows(5), rows(5)}, {{"z", rows(5)}, {"a", rows(5, 4)}}, rows(5),
      {1, rows(5, 7)},       Record{rows(5), 2}};
  const auto parts = ls::scatter(all, first_devices(2));
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[1].list[1].sizes(), (ls::Shape{2, 3}));
  EXPECT_EQ(parts[1].map.at("a").sizes(), (ls::Shape{2, 4}));
  EXPECT_EQ(std::get<ls::Tensor>(parts[1].choices[1]).sizes(), (ls::Shape{2, 7}));
  EXPECT_EQ(parts[1].record->a.size(0), 2);
  const All whole = ls::gather(parts, "cpu");
  EXPECT_EQ(whole.map.at("a").to_vector<double>(), all.map.at("a").to_vector<double>());
  EXPECT_EQ(whole.list[1].to_vector<double>(), all.list[1].to_vector<double>());
  EXPECT_EQ(std::get<ls::Tensor>(whole.choice).to_vector<double>(), rows(5).to_vector<double>());
}

TEST(Gather, G01RowsInReplicaOrderAndGradientsBack) {
  for (const ls::Device target : {ls::Device("cpu:0"), ls::Device("cpu"), ls::Device("cpu:3")}) {
    std::vector<ls::Tensor> parts;
    for (int i = 0; i < 2; ++i) {
      parts.push_back(rows(2, 4).to(ls::Device(ls::DeviceType::cpu, i)).detach());
      parts.back().requires_grad_();
    }
    const ls::Tensor whole = ls::gather(parts, target);
    EXPECT_EQ(whole.sizes(), (ls::Shape{4, 4}));
    EXPECT_EQ(whole.device(), target);
    const ls::Tensor weight = rows(4, 4).to(target);
    const auto first =
        ls::autograd::grad({(whole * whole * weight).sum()}, {parts[0], parts[1]}, {}, true, true);
    EXPECT_EQ(first[1].device(), ls::Device("cpu:1"));
    EXPECT_EQ(first[1].to_vector<double>()[1], 2 * 1 * 9);
    const auto second = ls::autograd::grad({first[1].sum()}, {parts[1]});
    EXPECT_EQ(second[0].to_vector<double>()[1], 2 * 9);
  }
}
TEST(Gather, G02DifferentRowCounts) {
  const std::vector<ls::Tensor> parts = {rows(2, 3).to(ls::Device("cpu:0")),
                                         rows(3, 3).to(ls::Device("cpu:1"))};
  EXPECT_EQ(ls::gather(parts, "cpu:0").sizes(), (ls::Shape{5, 3}));
}
TEST(Gather, G03ScalarsBecomeAVectorWithOneWarning) {
  const CaughtWarnings warnings;
  std::vector<ls::Tensor> parts;
  for (int i = 0; i < 2; ++i) {
    parts.push_back(ls::scalar_tensor(1.0 + i, ls::Device(ls::DeviceType::cpu, i)));
    parts.back().requires_grad_();
  }
  const ls::Tensor whole = ls::gather(parts, "cpu:0");
  EXPECT_EQ(whole.to_vector<double>(), (Values{1, 2}));
  ASSERT_EQ(warnings.texts.size(), 1U);
  EXPECT_NE(warnings.texts[0].find("all input tensors were scalars"), std::string::npos);
  whole.backward(ls::tensor<double>({5, 7}, "cpu:0"));
  EXPECT_EQ(parts[0].grad().sizes(), ls::Shape{});
  EXPECT_EQ(parts[0].grad().item(), 5.0);
  EXPECT_EQ(parts[1].grad().item(), 7.0);
}
TEST(Gather, G04DimMeansNothingForScalars) {
  const CaughtWarnings warnings;
  const std::vector<ls::Tensor> parts = {ls::scalar_tensor(1.0), ls::scalar_tensor(2.0)};
  EXPECT_EQ(ls::gather(parts, "cpu", 1).to_vector<double>(), (Values{1, 2}));
}
TEST(Gather, ALeafWithoutTheDimensionIsAnErrorThatNamesIt) {
  const std::pair part(ls::ones({2, 2}), ls::ones({2}));
  EXPECT_TRUE(throws<ls::IndexError>(
      [&] {
        ls::gather(std::vector{part, part}, "cpu", 1);
      },
      "output[1] cannot be gathered along dim 1", "[-1, 0]"));
  EXPECT_TRUE(throws<ls::IndexError>([&] { ls::gather(std::vector{ls::ones({2})}, "cpu", 1); },
                                     "output cannot be gathered along dim 1"));
}
TEST(Gather, G05AScalarAndAVectorDoNotFit) {
  EXPECT_TRUE(throws<ls::ShapeError>(
      [] {
        ls::gather(std::vector<ls::Tensor>{ls::scalar_tensor(1.0),
                                           ls::ones({2}, {.dtype = ls::Dtype::f64})},
                   "cpu");
      },
      "index 1"));
}
TEST(Gather, G06NothingEverywhereIsNothing) {
  const std::vector<std::optional<ls::Tensor>> none(2);
  EXPECT_FALSE(ls::gather(none, "cpu").has_value());
}
TEST(Gather, G08AValueInOneReplicaOnly) {
  const std::vector<std::optional<ls::Tensor>> some = {rows(2), std::nullopt};
  EXPECT_TRUE(throws<ls::ValueError>([&] { ls::gather(some, "cpu"); }, "replica 1"));
}
using Dict = std::map<std::string, std::optional<ls::Tensor>>;
TEST(Gather, G09MapsWithAnEmptyValue) {
  const std::vector<Dict> parts(2, Dict{{"x", rows(2)}, {"y", {}}});
  const Dict whole = ls::gather(parts, "cpu");
  EXPECT_EQ(whole.at("x")->size(0), 4);
  EXPECT_FALSE(whole.at("y").has_value());
}
TEST(Gather, ListsOfListsOfDifferentSize) {
  using Lists = std::vector<std::vector<ls::Tensor>>;
  const std::vector<Lists> parts = {{{rows(2)}, {rows(2), rows(2)}}, {{rows(2)}, {rows(2)}}};
  EXPECT_TRUE(throws<ls::ValueError>([&] { ls::gather(parts, "cpu"); },
                                     "output[1] has 2 elements in replica 0, but 1 in replica 1"));
}
TEST(Gather, G10MapsOfDifferentSize) {
  const std::vector<Dict> parts = {{{"x", rows(2)}}, {{"x", rows(2)}, {"y", rows(2)}}};
  EXPECT_TRUE(throws<ls::ValueError>([&] { ls::gather(parts, "cpu"); },
                                     "All dicts must have the same number of keys"));
}
TEST(Gather, G11MapsWithOtherKeys) {
  const std::vector<Dict> parts = {{{"x", rows(2)}}, {{"z", rows(2)}}};
  EXPECT_TRUE(throws<ls::ValueError>([&] { ls::gather(parts, "cpu"); }, "key x", "replica 1"));
}
TEST(Gather, G13G18PlainStructs) {
  struct Pair {
    ls::Tensor p;
    ls::Tensor q;
  };
  for (const ls::Device target : {ls::Device("cpu"), ls::Device("cpu:1")}) {
    const Pair whole =
        ls::gather(std::vector<Pair>{{rows(2), rows(1)}, {rows(3), rows(1)}}, target);
    EXPECT_EQ(whole.p.size(0), 5);
    EXPECT_EQ(whole.q.size(0), 2);
    EXPECT_EQ(whole.q.device(), target);
  }
}
// A part of a module that may also be an argument: the hook leaves out what is not saved.
struct WithHook {
  ls::Tensor kept;
  ls::Tensor passing;
  template <class Self, class Visitor>
  static void visit_members(Self& self, Visitor&& visit) {
    visit("kept", self.kept);
  }
};
TEST(Gather, AStructsHookForModulesLeavesNothingOut) {
  const auto parts = ls::scatter(WithHook{rows(5), rows(5)}, first_devices(2));
  EXPECT_EQ(parts[1].passing.sizes(), (ls::Shape{2, 2}));
  EXPECT_EQ(ls::gather(parts.parts(), "cpu").passing.to_vector<double>(),
            rows(5).to_vector<double>());
}

TEST(Gather, G14ListsOfDifferentLength) {
  const std::vector<std::vector<ls::Tensor>> parts = {{rows(2), rows(2)}, {rows(2)}};
  EXPECT_TRUE(throws<ls::ValueError>([&] { ls::gather(parts, "cpu"); }, "2 elements", "replica 1"));
  using Map = std::map<std::string, std::vector<ls::Tensor>>;
  const std::vector<Map> maps = {{{"a", parts[0]}}, {{"a", parts[1]}}};
  EXPECT_TRUE(throws<ls::ValueError>([&] { ls::gather(maps, "cpu"); }, "2 elements", "replica 1"));
}
TEST(Gather, G15ADeepNestingComesBackAsItWas) {
  using Map = std::map<std::string, std::variant<ls::Tensor, std::vector<ls::Tensor>>>;
  using Nested = std::tuple<ls::Tensor, std::tuple<ls::Tensor, ls::Tensor, std::vector<ls::Tensor>>,
                            ls::Tensor, Map>;
  const auto nest = [](const ls::Tensor& t) {
    return Nested{t,
                  {ls::tanh(t), ls::exp(t), {t + 1}},
                  t,
                  {{"a", t}, {"b", std::vector<ls::Tensor>{ls::tanh(t)}}}};
  };
  const ls::Tensor t = rows(11);
  // A GPU's exp is another one than a host device's.
  const Nested expected = nest(ls::scatter(t, first_devices(1))[0]);
  std::vector<Nested> parts;
  for (const ls::Tensor& chunk : ls::scatter(t, first_devices(8))) parts.push_back(nest(chunk));
  const Nested whole = ls::gather(parts, "cpu:0");
  const auto leaves = [](const Nested& value) {
    const auto& [a, inner, d, map] = value;
    const auto& [b, c, list] = inner;
    return std::vector<ls::Tensor>{a,
                                   b,
                                   c,
                                   list.at(0),
                                   d,
                                   std::get<ls::Tensor>(map.at("a")),
                                   std::get<std::vector<ls::Tensor>>(map.at("b")).at(0)};
  };
  const auto got = leaves(whole);
  const auto want = leaves(expected);
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i].to_vector<double>(), want[i].to_vector<double>()) << i;
    EXPECT_EQ(got[i].sizes(), want[i].sizes());
  }
}

TEST(Gather, G16NumbersBecomeAListWithOneForEachReplica) {
  EXPECT_EQ(ls::gather(std::vector<int>{1, 2}, "cpu:0"), (std::vector<int>{1, 2}));
  EXPECT_EQ(ls::gather(std::vector<double>{1.5, 2.5}, "cpu:0"), (std::vector<double>{1.5, 2.5}));
  EXPECT_EQ(ls::gather(std::vector<bool>{true, false}, "cpu:0"), (std::vector<bool>{true, false}));
}

TEST(Gather, G17StringsBecomeAListToo) {
  EXPECT_EQ(ls::gather(std::vector<std::string>{"ab", "cd"}, "cpu:0"),
            (std::vector<std::string>{"ab", "cd"}));
}

TEST(Gather, G16G17NumbersAndStringsWithinAStructureHaveToAgree) {
  struct Result {
    ls::Tensor values;
    int count;
    std::string name;
    std::vector<double> numbers;
  };
  const auto result = [](int count, const std::string& name, double number) {
    return Result{ls::ones({2}), count, name, {0.5, number}};
  };
  const Result both = ls::gather(std::vector{result(3, "a", 1), result(3, "a", 1)}, "cpu:0");
  EXPECT_EQ(both.values.sizes(), (ls::Shape{4}));
  EXPECT_EQ(both.count, 3);
  EXPECT_EQ(both.name, "a");
  EXPECT_EQ(both.numbers, (std::vector<double>{0.5, 1}));
  const auto gather_with = [&](const Result& other) {
    return [&result, other] { ls::gather(std::vector{result(3, "a", 1), other}, "cpu:0"); };
  };
  EXPECT_TRUE(throws<ls::ValueError>(gather_with(result(4, "a", 1)), "output.count is 3", "but 4",
                                     "replica 1", "tensor"));
  EXPECT_TRUE(throws<ls::ValueError>(gather_with(result(3, "b", 1)), "output.name is a", "but b"));
  EXPECT_TRUE(throws<ls::ValueError>(gather_with(result(3, "a", 2)), "output.numbers"));
}

TEST(Gather, G19ShapesThatDoNotFit) {
  EXPECT_TRUE(throws<ls::ShapeError>(
      [] {
        ls::gather(std::vector<ls::Tensor>{rows(2), rows(3)}, "cpu", 1);
      },
      "index 1", "[3, 2]", "[2, 2]"));
}
TEST(Gather, RowsThatNoNumberHoldsAddedUpAreAnError) {
  const ls::Tensor x = ls::zeros({INT64_MAX, 0});
  EXPECT_TRUE(throws<ls::ShapeError>(
      [&] {
        ls::gather(std::vector<ls::Tensor>{x, x}, "cpu");
      },
      "index 1", "[9223372036854775807, 0]"));
}
TEST(Gather, G21NothingToGather) {
  EXPECT_TRUE(
      throws<ls::ValueError>([] { ls::gather(std::vector<ls::Tensor>{}, "cpu"); }, "no outputs"));
}
TEST(Gather, G22HostMemoryIsAnOrdinarySource) {
  EXPECT_EQ(ls::gather(std::vector<ls::Tensor>{rows(2), rows(1)}, "cpu:1").sizes(),
            (ls::Shape{3, 2}));
}
TEST(Gather, DtypesThatDoNotFit) {
  const std::vector<ls::Tensor> parts = {ls::ones({2}), ls::ones({2}, {.dtype = ls::Dtype::f64})};
  EXPECT_TRUE(throws<ls::DtypeError>([&] { ls::gather(parts, "cpu"); }, "index 1", "f64", "f32"));
}

TEST(Gather, EqualCStringsAreEqualWhereverTheyLie) {
  struct Named {
    ls::Tensor values;
    const char* name;
  };
  const std::string first = "rows";
  const std::string second = "rows";
  const std::vector<Named> same = {{ls::ones({1}), first.c_str()}, {ls::ones({1}), second.c_str()}};
  EXPECT_STREQ(ls::gather(same, "cpu").name, "rows");
  const std::vector<Named> other = {{ls::ones({1}), "rows"}, {ls::ones({1}), nullptr}};
  EXPECT_TRUE(throws<ls::ValueError>([&] { ls::gather(other, "cpu"); }, "output.name", "null"));
}

TEST(Gather, WhichReplicasTensorIsUndefined) {
  const std::vector<Record> first = {{ls::Tensor(), 1}, {rows(2), 1}};
  EXPECT_TRUE(throws<ls::ValueError>([&] { ls::gather(first, "cpu"); },
                                     "output.a is an undefined tensor in replica 0",
                                     "defined in replica 1"));
  const std::vector<ls::Tensor> last = {rows(2), rows(2), ls::Tensor()};
  EXPECT_TRUE(throws<ls::ValueError>([&] { ls::gather(last, "cpu"); },
                                     "output is an undefined tensor in replica 2",
                                     "defined in replica 0"));
}

TEST(Gather, ArraysOfNumbersHaveToAgreeAsWell) {
  struct Counted {
    ls::Tensor values;
    int counts[2];
    char tag[4];
  };
  const Counted one{rows(2), {1, 2}, "abc"};
  const Counted whole = ls::gather(std::vector{one, one}, "cpu");
  EXPECT_EQ(whole.values.size(0), 4);
  EXPECT_EQ(whole.counts[1], 2);
  EXPECT_STREQ(whole.tag, "abc");
  const std::vector<Counted> counts = {one, {rows(2), {1, 3}, "abc"}};
  EXPECT_TRUE(throws<ls::ValueError>([&] { ls::gather(counts, "cpu"); }, "output.counts"));
  const std::vector<Counted> tags = {one, {rows(2), {1, 2}, "abd"}};
  EXPECT_TRUE(throws<ls::ValueError>([&] { ls::gather(tags, "cpu"); }, "output.tag"));
}

class Vocabulary {
 public:
  explicit Vocabulary(int words) : words_(words) {}
  int words() const { return words_; }

 private:
  int words_;
};
struct Labelled {
  ls::Tensor values;
  Vocabulary vocabulary;
  std::less<> order = {};  // without state there is nothing to lose
};

}  // namespace scatter_gather_test

template <>
inline constexpr bool lockstep::shared_by_replicas<scatter_gather_test::Vocabulary> = true;

namespace scatter_gather_test {

TEST(Gather, WhatIsMarkedAsSharedIsReplicaZeros) {
  const Labelled whole =
      ls::gather(std::vector<Labelled>{{rows(2), Vocabulary(7)}, {rows(1), Vocabulary(8)}}, "cpu");
  EXPECT_EQ(whole.values.size(0), 3);
  EXPECT_EQ(whole.vocabulary.words(), 7);
}

TEST(Scatter, AConstantInPartsLeavesTheDivisionToTheRule) {
  const auto [parts, kwargs] =
      ls::scatter_kwargs(std::tuple(rows(6), ls::Scattered<int>({1, 2})), 0, first_devices(3));
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(std::get<0>(parts[1]).size(0), 3);
  EXPECT_EQ(std::get<1>(parts[1]), 2);
  EXPECT_EQ(kwargs.size(), 2U);
}

TEST(Scatter, RowsThatMakeFewerPartsThanAConstantHasAreRefused) {
  const auto scatter = [] {
    (void)ls::scatter_kwargs(std::tuple(rows(5), ls::Scattered<int>({1, 2, 3, 4})), 0,
                             first_devices(4));
  };
  EXPECT_TRUE(throws<ls::ValueError>(
      scatter, "args[0] has 5 rows along dim 0, which make 3 parts, but args[1] has 4"));
}

}  // namespace scatter_gather_test
