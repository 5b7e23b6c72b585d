// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/backend/threads/worker_team.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/linear.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/parallel/comm/detail/transfer.hpp>
#include <lockstep/parallel/criterion.hpp>
#include <lockstep/parallel/data_parallel.hpp>
#include <lockstep/parallel/replicas/balance.hpp>

#include "parallel/layers.hpp"
#include "support/devices.hpp"
#include "support/expect_error.hpp"
#include "support/warnings.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace ls = lockstep;
using ls::testing::CaughtWarnings;
using ls::testing::f64;
using ls::testing::first_devices;
using ls::testing::L0;
using ls::testing::throws;
using ls::testing::x5;
using ls::testing::y5;

namespace data_parallel_options_test {

using Values = std::vector<double>;

// How many rows each replica was given.
struct Rows {
  ls::Tensor forward(const ls::Tensor& x) const {
    return ls::full({1}, static_cast<double>(x.size(0)),
                    {.dtype = ls::Dtype::f64, .device = x.device()});
  }
};

Values rows_of(const ls::Split& split, std::int64_t rows, std::size_t devices) {
  ls::DataParallel model{Rows{}, first_devices(devices), {.split = split}};
  return model(ls::ones({rows, 2})).to_vector<double>();
}

TEST(DataParallelSplit, EachRuleDividesTheRows) {
  EXPECT_EQ(rows_of(ls::Split::chunk, 10, 4), (Values{3, 3, 3, 1}));
  EXPECT_EQ(rows_of(ls::Split::balanced, 10, 4), (Values{3, 3, 2, 2}));
  EXPECT_EQ(rows_of(ls::Split::sizes({1, 2, 7, 0}), 10, 4), (Values{1, 2, 7, 0}));
  EXPECT_EQ(rows_of(ls::Split::weights({3, 1, 1}), 10, 3), (Values{6, 2, 2}));
  EXPECT_EQ(rows_of(ls::Split::weights({100, 1, 1}), 4, 3), (Values{2, 1, 1}));
  EXPECT_EQ(rows_of(ls::Split::weights({1, 1, 100}), 2, 3), (Values{1, 1}));
}

TEST(DataParallelSplit, OutputsAndGradientsDoNotDependOnIt) {
  for (const ls::Split& split :
       {ls::Split::balanced, ls::Split::sizes({3, 0, 2}), ls::Split::weights({1, 5, 2})}) {
    ls::DataParallel model{L0{}, first_devices(3), {.split = split}};
    const ls::Tensor y = model(x5());
    EXPECT_EQ(y.to_vector<double>(), y5());
    y.sum().backward();
    EXPECT_EQ(model.module().weight.grad().to_vector<double>(), (Values{3, 3, 3, 3}));
  }
}

TEST(DataParallelSplit, SizesAndWeightsHaveToFit) {
  ls::DataParallel sizes{L0{}, first_devices(2), {.split = ls::Split::sizes({3, 3})}};
  EXPECT_TRUE(throws<ls::ValueError>([&] { sizes(x5()); }, "sum to 5", "sum to 6"));
  ls::DataParallel few{L0{}, first_devices(3), {.split = ls::Split::sizes({3, 2})}};
  EXPECT_TRUE(throws<ls::ValueError>([&] { few(x5()); }, "same length", "3 devices", "2 chunk"));
  ls::DataParallel weights{L0{}, first_devices(3), {.split = ls::Split::weights({1, 2})}};
  EXPECT_TRUE(throws<ls::ValueError>([&] { weights(x5()); }, "each of 3 devices", "got 2"));
  EXPECT_TRUE(throws<ls::ValueError>([] { ls::Split::weights({1, 0}); }, "positive", "got 0"));
}

// As BatchNorm in training: one row has no variance.
struct NeedsTwoRows {
  ls::Tensor forward(const ls::Tensor& x) const {
    ls::check<ls::ValueError>(x.size(0) > 1, "expected more than 1 value per channel");
    return x;
  }
};

TEST(DataParallelSplit, D19NoReplicaIsGivenTooFewRows) {
  const ls::Tensor x = ls::ones({3, 2});
  ls::DataParallel plain{NeedsTwoRows{}, first_devices(2)};
  EXPECT_TRUE(throws<ls::ValueError>([&] { plain(x); }, "replica 1", "more than 1 value"));
  ls::DataParallel model{NeedsTwoRows{}, first_devices(2), {.split = ls::Split::chunk.at_least(2)}};
  EXPECT_EQ(model(x).sizes(), (ls::Shape{3, 2}));
  EXPECT_EQ(rows_of(ls::Split::balanced.at_least(2), 7, 4), (Values{3, 2, 2}));
}

struct Mean {
  ls::Tensor forward(const ls::Tensor& x) const { return x.mean(); }
};
struct Sum {
  ls::Tensor forward(const ls::Tensor& x) const { return x.sum(); }
};

ls::Tensor one_to_ten() { return f64({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {10}); }

TEST(DataParallelScalars, X06D14AMeanIsTheBatchsMean) {
  const CaughtWarnings warnings;
  ls::DataParallel model{Mean{}, first_devices(3), {.scalar_outputs = ls::Reduction::mean}};
  const ls::Tensor x = one_to_ten();
  x.requires_grad_();
  const ls::Tensor y = model(x);
  EXPECT_EQ(y.sizes(), ls::Shape{});
  EXPECT_DOUBLE_EQ(y.item(), 5.5);
  y.backward();
  for (const double grad : x.grad().to_vector<double>()) EXPECT_DOUBLE_EQ(grad, 0.1);
  EXPECT_EQ(warnings.count(), 0);
}

TEST(DataParallelScalars, ASumIsAdded) {
  for (const std::size_t devices : {1U, 2U, 3U, 8U}) {
    ls::DataParallel model{Sum{}, first_devices(devices), {.scalar_outputs = ls::Reduction::sum}};
    const ls::Tensor y = model(one_to_ten());
    EXPECT_EQ(y.sizes(), ls::Shape{}) << devices;
    EXPECT_EQ(y.item(), 55);
  }
}

TEST(DataParallelScalars, OnlyScalarsWithinAResultAreReduced) {
  struct Both {
    std::tuple<ls::Tensor, ls::Tensor> forward(const ls::Tensor& x) const {
      return {x * 2, x.mean()};
    }
  };
  ls::DataParallel model{
      Both{}, first_devices(3), {.output_device = "cpu", .scalar_outputs = ls::Reduction::mean}};
  const auto [doubled, mean] = model(one_to_ten());
  EXPECT_EQ(doubled.sizes(), (ls::Shape{10}));
  EXPECT_DOUBLE_EQ(mean.item(), 5.5);
  EXPECT_EQ(mean.device(), ls::Device("cpu"));
}

TEST(DataParallelScalars, OneChunkIsItsOwnMean) {
  ls::DataParallel model{Mean{}, first_devices(2), {.scalar_outputs = ls::Reduction::mean}};
  EXPECT_EQ(model(f64({3}, {1})).sizes(), ls::Shape{});
}

// A running mean of the rows' sums, with momentum 1/2, and a count of calls.
struct Running {
  ls::Buffer mean{f64({0}, {1})};
  ls::Buffer calls{ls::zeros({1}, {.dtype = ls::Dtype::i64})};
  ls::Tensor forward(const ls::Tensor& x) const {
    mean.copy_((mean + x.mean().reshape({1})) * 0.5);
    calls.add_(ls::ones({1}, calls.options()));
    return x;
  }
};

TEST(DataParallelBuffers, TheFirstReplicasStay) {
  ls::DataParallel model{Running{}, first_devices(2)};
  model(f64({1, 2, 6}, {3}));
  EXPECT_EQ(model.module().mean.to_vector<double>(), Values{0.75});
}

TEST(DataParallelBuffers, MergedAreWeightedWithTheRows) {
  ls::DataParallel model{Running{}, first_devices(2), {.buffers = ls::ReplicaBuffers::merged}};
  model(f64({1, 2, 6}, {3}));
  EXPECT_EQ(model.module().mean.to_vector<double>(), Values{1.5});
  EXPECT_EQ(model.module().calls.to_vector<std::int64_t>(), std::vector<std::int64_t>{1});
  model(f64({1, 2, 6}, {3}));  // the merged ones are what every replica starts from
  EXPECT_EQ(model.module().mean.to_vector<double>(), Values{2.25});
}

TEST(DataParallelBuffers, ThoseThatForwardReplacesAreMergedAsWell) {
  struct First {
    ls::Buffer row{f64({0}, {1})};
    ls::Tensor forward(const ls::Tensor& x) const {
      row.set_data(x.narrow(0, 0, 1));
      return x;
    }
  };
  ls::DataParallel model{First{}, first_devices(2), {.buffers = ls::ReplicaBuffers::merged}};
  const ls::Tensor x = f64({1, 2, 7}, {3}, model.devices()[0]);
  model(x);
  EXPECT_DOUBLE_EQ(model.module().row.item(), 3);
  EXPECT_EQ(x.to_vector<double>(), (Values{1, 2, 7}));
}

// Which branch a call takes, as seen from what it costs: copies, and threads that ran it.
struct Cost {
  std::uint64_t copies;
  std::uint64_t shares;  // replicas that ran on another thread than the caller's
};
template <class Call>
Cost cost_of(Call call) {
  const auto copies = ls::comm::detail::copies_issued().load();
  const auto shares = ls::detail::team_stats().shares_posted;
  call();
  return {ls::comm::detail::copies_issued().load() - copies,
          ls::detail::team_stats().shares_posted - shares};
}

TEST(DataParallelBranches, WithoutDevicesResultsAreWhereTheFirstParameterIs) {
  struct Two {
    ls::Parameter first{ls::zeros({1}, {.device = "cpu:3"})};
    ls::Parameter second{ls::zeros({1}, {.device = "cpu:2"})};
    ls::Tensor forward(const ls::Tensor& x) const { return x; }
  };
  EXPECT_EQ((ls::DataParallel{Two{}, std::nullopt}.output_device()), ls::Device("cpu:3"));
}

TEST(DataParallelBranches, NoDevicesAreThePlainModule) {
  ls::DataParallel model{L0{}, std::nullopt};
  EXPECT_TRUE(model.device_ids().empty());
  EXPECT_EQ(model.module().weight.device(), ls::Device("cpu"));
  const Cost cost = cost_of([&] { EXPECT_EQ(model(x5()).to_vector<double>(), y5()); });
  EXPECT_EQ(cost.copies, 0U);
  EXPECT_EQ(cost.shares, 0U);
  EXPECT_EQ(model.output_device(), ls::Device("cpu"));
}

TEST(DataParallelBranches, OneDeviceMovesTheArgumentsThere) {
  ls::DataParallel model{L0{}, first_devices(1)};
  const ls::Tensor here = x5();
  const ls::Tensor there = here.to("cpu:0");
  const Cost from_host = cost_of([&] { EXPECT_EQ(model(here).to_vector<double>(), y5()); });
  EXPECT_EQ(from_host.copies, 1U);
  EXPECT_EQ(from_host.shares, 0U);
  const Cost in_place = cost_of([&] { EXPECT_EQ(model(there).to_vector<double>(), y5()); });
  EXPECT_EQ(in_place.copies, 0U);
  EXPECT_EQ(in_place.shares, 0U);
}

TEST(DataParallelBranches, ManyScatterApplyAndGather) {
  for (const std::size_t k : {2U, 3U, 5U}) {
    ls::DataParallel model{L0{}, first_devices(k)};
    const ls::Tensor x = f64(Values(10 * k, 1), {static_cast<std::int64_t>(5 * k), 2});
    const Cost first = cost_of([&] { model(x); });
    EXPECT_EQ(first.copies, k + 2 * (k - 1) + k) << "chunks, two parameters a replica, outputs";
    EXPECT_EQ(first.shares, k - 1);
    const Cost second = cost_of([&] { model(x); });
    EXPECT_EQ(second.copies, k + k) << "nothing is broadcast again";
    EXPECT_EQ(second.shares, k - 1);
    // Fewer rows than devices: only as many of the persistent copies run.
    const Cost short_batch = cost_of([&] { model(f64({1, 1, 1, 1}, {2, 2})); });
    EXPECT_EQ(short_batch.copies, 4U);
    EXPECT_EQ(short_batch.shares, 1U);
  }
}

TEST(DataParallelCopies, ACopySharesTheParametersAndHasItsOwnReplicas) {
  ls::DataParallel model{L0{}, first_devices(2)};
  model(x5());
  ls::DataParallel copy = model;
  EXPECT_TRUE(copy.module().weight.is_same(model.module().weight));
  const Cost cost = cost_of([&] { EXPECT_EQ(copy(x5()).to_vector<double>(), y5()); });
  EXPECT_EQ(cost.copies, 2U + 2U + 2U) << "the copy's replicas are filled for the first time";
  EXPECT_EQ(cost_of([&] { model(x5()); }).copies, 4U) << "the original's are as they were";
  copy(x5()).sum().backward();
  EXPECT_EQ(model.module().bias.grad().to_vector<double>(), (Values{5, 5}));
  ls::DataParallel assigned{L0{}, first_devices(3)};
  assigned(x5());
  assigned = model;
  EXPECT_TRUE(assigned.module().weight.is_same(model.module().weight));
  EXPECT_EQ(cost_of([&] { EXPECT_EQ(assigned(x5()).to_vector<double>(), y5()); }).copies, 6U);
  EXPECT_EQ(cost_of([&] { model(x5()); }).copies, 4U);
}

TEST(DataParallelCopies, AMovedOneTakesItsReplicasAlong) {
  ls::DataParallel model{L0{}, first_devices(2)};
  model(x5());
  ls::DataParallel moved = std::move(model);
  EXPECT_EQ(cost_of([&] { EXPECT_EQ(moved(x5()).to_vector<double>(), y5()); }).copies, 4U);
  ls::DataParallel other{L0{}, first_devices(3)};
  other = std::move(moved);
  EXPECT_EQ(other.device_ids().size(), 2U);
  EXPECT_EQ(cost_of([&] { EXPECT_EQ(other(x5()).to_vector<double>(), y5()); }).copies, 4U);
}

TEST(DataParallelState, D12NamesHaveNoPrefixHoweverOftenWrapped) {
  const std::vector<std::string> names = {"weight", "bias"};
  const auto names_of = [](const ls::StateDict& dict) {
    std::vector<std::string> result;
    for (const auto& entry : dict) result.push_back(entry.name);
    return result;
  };
  ls::DataParallel model{L0{}, first_devices(2)};
  EXPECT_EQ(names_of(model.state_dict()), names);
  ls::DataParallel twice{model, first_devices(2)};
  EXPECT_EQ(names_of(twice.state_dict()), names);
}

TEST(DataParallelState, D12StateIsLoadedWithAndWithoutTorchsPrefix) {
  for (const std::string prefix : {"", "module."}) {
    ls::StateDict dict;
    dict.push_back({prefix + "weight", f64({5, 6, 7, 8}, {2, 2})});
    dict.push_back({prefix + "bias", f64({1, 2}, {2})});
    ls::DataParallel model{L0{}, first_devices(2)};
    EXPECT_EQ(model(x5()).to_vector<double>(), y5());
    model.load_state_dict(dict);
    EXPECT_EQ(model(x5()).to_vector<double>(), (Values{6, 9, 7, 10, 12, 17, 5, 8, 8, 11}))
        << "every replica has been told";
  }
}

TEST(NestedDataParallel, OutputsAndGradientsAreThoseOfOneDevice) {
  struct Outer {
    ls::DataParallel<L0> inner{L0{}, first_devices(2)};
    ls::Tensor forward(const ls::Tensor& x) { return inner(x) * 2; }
  };
  for (const std::size_t k : {1U, 2U, 3U}) {  // a third device is none of the inner one's
    ls::DataParallel model{Outer{}, first_devices(k)};
    const ls::Tensor y = model(x5());
    Values twice = y5();
    for (double& value : twice) value *= 2;
    EXPECT_EQ(y.to_vector<double>(), twice) << k;
    EXPECT_EQ(y.device(), ls::Device("cpu:0"));
    y.sum().backward();
    const L0& inner = model.module().inner.module();
    EXPECT_EQ(inner.weight.grad().to_vector<double>(), (Values{6, 6, 6, 6}));
    EXPECT_EQ(inner.bias.grad().to_vector<double>(), (Values{10, 10}));
    EXPECT_EQ(model.module().inner.device_ids(), first_devices(2)) << "only replicas move";
  }
}

TEST(Balance, D22OneDeviceHasMuchLessMemoryOrFewerCores) {
  const std::vector<ls::Device> devices = {"cuda:0", "cuda:1"};
  const auto warning = [&](std::size_t memory, int cores) {
    return ls::detail::imbalance(devices, {{"a", 100, 100}, {"b", memory, cores}});
  };
  ASSERT_TRUE(warning(74, 100).has_value());
  EXPECT_NE(warning(74, 100)->find("exclude cuda:1 which has less than 75% of the memory or cores "
                                   "of cuda:0"),
            std::string::npos);
  EXPECT_FALSE(warning(75, 100).has_value());
  EXPECT_FALSE(warning(100, 75).has_value());
  EXPECT_TRUE(warning(100, 50).has_value());
  EXPECT_TRUE(warning(200, 100).has_value()) << "the other way round";
  EXPECT_FALSE(ls::detail::imbalance(devices, {{"a", 0, 100}, {"b", 0, 100}}).has_value());
}

TEST(Balance, OnlyOfAGpuItSaysHowToHideIt) {
  const auto text = [](const ls::Device& least) {
    return ls::detail::imbalance({"cpu:0", least}, {{"a", 100, 100}, {"b", 50, 100}}).value();
  };
  EXPECT_NE(text("cuda:1").find("CUDA_VISIBLE_DEVICES"), std::string::npos);
  EXPECT_EQ(text("cpu:1").find("CUDA_VISIBLE_DEVICES"), std::string::npos);
  EXPECT_NE(text("cpu:1").find("by setting the device_ids of DataParallel; Split::weights"),
            std::string::npos);
}

TEST(Balance, HostDevicesAreAlike) {
  const CaughtWarnings warnings;
  const ls::DataParallel model{L0{}};
  EXPECT_EQ(warnings.count(), 0);
  EXPECT_GT(ls::device_properties("cpu:0").total_memory, 0U);
  EXPECT_GE(ls::device_properties("cpu:0").multi_processor_count, 1);
}

TEST(DataParallelScalars, APartWithoutRowsDoesNotCount) {
  const auto split = ls::Split::sizes({4, 0});
  ls::DataParallel model{
      Mean{}, first_devices(2), {.split = split, .scalar_outputs = ls::Reduction::mean}};
  EXPECT_DOUBLE_EQ(model(f64({1, 2, 3, 4}, {4})).item(), 2.5);
  ls::DataParallel merged{
      Running{}, first_devices(2), {.split = split, .buffers = ls::ReplicaBuffers::merged}};
  merged(f64({1, 2, 3, 4}, {4}));
  EXPECT_EQ(merged.module().mean.to_vector<double>(), Values{1.25});
}

TEST(DataParallelScalars, PartsWithoutATensorCountAlike) {
  struct MayBeAbsent {
    ls::Tensor forward(const std::optional<ls::Tensor>& x) const {
      return x ? x->mean() : ls::full({}, 7, {.dtype = ls::Dtype::f64, .device = "cpu:1"});
    }
  };
  ls::DataParallel model{MayBeAbsent{}, first_devices(2), {.scalar_outputs = ls::Reduction::mean}};
  const ls::Scattered<std::optional<ls::Tensor>> parts(
      {f64({1, 2, 3}, {3}, "cpu:0"), std::nullopt});
  EXPECT_DOUBLE_EQ(model(parts).item(), 4.5);
}

TEST(DataParallelScalars, IntegersHaveASumButNoMean) {
  struct Count {
    ls::Tensor forward(const ls::Tensor& x) const {
      return ls::full({}, static_cast<double>(x.size(0)),
                      {.dtype = ls::Dtype::i64, .device = x.device()});
    }
  };
  ls::DataParallel sum{Count{}, first_devices(2), {.scalar_outputs = ls::Reduction::sum}};
  EXPECT_EQ(sum(one_to_ten()).item<std::int64_t>(), 10);
  ls::DataParallel mean{Count{}, first_devices(2), {.scalar_outputs = ls::Reduction::mean}};
  EXPECT_TRUE(throws<ls::DtypeError>([&] { mean(one_to_ten()); }, "mean", "i64", "Reduction::sum"));
}

TEST(NestedDataParallel, ResultsAndTheSplitFollowTheReplica) {
  struct Outer {
    ls::DataParallel<Rows> inner;
    ls::Tensor forward(const ls::Tensor& x) {
      const ls::Tensor rows = inner(x);
      EXPECT_EQ(rows.device(), x.device());
      return rows;
    }
  };
  // cpu:0 is the one with more rows, and comes second where cpu:1 is first.
  for (const ls::Split& split : {ls::Split::weights({3, 1}), ls::Split::sizes({3, 1})}) {
    const ls::DataParallel<Rows> inner{
        Rows{}, first_devices(2), {.output_device = "cpu:0", .split = split}};
    ls::DataParallel model{Outer{inner}, first_devices(2)};
    EXPECT_EQ(model(ls::ones({8, 1})).to_vector<double>(), (Values{3, 1, 1, 3}));
  }
}

TEST(DataParallelArguments, OnePairOrTupleIsOneArgument) {
  struct OfPair {
    ls::Tensor forward(const std::pair<ls::Tensor, ls::Tensor>& x) const {
      return x.first + x.second;
    }
  };
  struct OfTuple {
    ls::Tensor forward(const std::tuple<ls::Tensor, int>& x) const {
      return std::get<0>(x) * std::get<1>(x);
    }
  };
  const ls::Tensor x = one_to_ten();
  for (const std::size_t devices : {1U, 3U}) {
    ls::DataParallel pair{OfPair{}, first_devices(devices)};
    EXPECT_EQ(pair(std::pair(x, x)).to_vector<double>()[9], 20);
    ls::DataParallel tuple{OfTuple{}, first_devices(devices)};
    EXPECT_EQ(tuple(std::tuple(x, 3)).to_vector<double>()[9], 30);
  }
}

TEST(DataParallelArguments, OptionsMayBeWrittenInAnyForm) {
  const auto devices = first_devices(2);
  EXPECT_EQ((ls::DataParallel{L0{}, devices, {}}.output_device()), ls::Device("cpu:0"));
  EXPECT_EQ((ls::DataParallel{L0{}, devices, {"cpu"}}.output_device()), ls::Device("cpu"));
  EXPECT_EQ((ls::DataParallel{L0{}, devices, "cpu:1"}.output_device()), ls::Device("cpu:1"));
  EXPECT_EQ((ls::DataParallel{L0{}, devices, std::nullopt, 1}.dim()), 1);
  EXPECT_EQ((ls::DataParallel{L0{}, std::nullopt, {"cpu:3"}}(x5()).device()), ls::Device("cpu:3"));
  const L0 module = [] {
    L0 made;
    ls::to(made, "cpu:0");
    return made;
  }();
  EXPECT_EQ(ls::data_parallel(module, x5(), devices, {"cpu"}).device(), ls::Device("cpu"));
  EXPECT_EQ(ls::data_parallel(module, std::tuple(x5()), devices, {}).to_vector<double>(), y5());
  EXPECT_EQ(ls::data_parallel(module, x5(), devices, ls::Device("cpu:1")).device(),
            ls::Device("cpu:1"));
}

// Counts its calls in a member, and its rows in a buffer.
struct Busy {
  ls::Parameter weight{ls::ones({1})};
  ls::Buffer rows{ls::zeros({1})};
  int calls = 0;
  ls::Tensor forward(const ls::Tensor& x) {
    ++calls;
    rows.add_(ls::full({1}, static_cast<double>(x.size(0)), {.device = x.device()}));
    return x * weight;
  }
};

TEST(DataParallelCall, AConstOneIsAsGoodAsAny) {
  const ls::DataParallel model{Busy{}, first_devices(2)};
  const std::vector<float> five = {0, 1, 2, 3, 4};
  const ls::Tensor x = ls::tensor(five);
  for (int call = 1; call <= 3; ++call) {
    const ls::Tensor y = model(x);
    EXPECT_EQ(y.to_vector<float>(), five);
    EXPECT_EQ(model.module().rows.item(), 3 * call) << "the first replica's buffer stays";
    y.sum().backward();
    EXPECT_EQ(model.module().weight.grad().item(), 10 * call);
  }
  EXPECT_EQ(model.module().calls, 0) << "replicas count for themselves";
  model.forward(x.narrow(0, 0, 1));  // one chunk: the module itself is called
  EXPECT_EQ(model.module().calls, 1);
  model.module().weight.detach().fill_(2);
  EXPECT_EQ(model(x).to_vector<float>(), (std::vector<float>{0, 2, 4, 6, 8}));

  const ls::DataParallel alone{Busy{}, first_devices(1)};
  EXPECT_EQ(alone(x).to_vector<float>(), five);
  EXPECT_EQ(alone.module().calls, 1);
  const ls::DataParallelModel apart{Busy{}, first_devices(2)};
  EXPECT_EQ(apart(x).size(), 2U);
  static_assert(std::is_same_v<decltype(model.module()), const Busy&>);
}

TEST(DataParallelCall, DevicesAreNamedByNumbersAsInTorch) {
  ls::DataParallel model{L0{}, {1, 0}};
  EXPECT_EQ(model.device_ids(), (std::vector<ls::Device>{"cpu:1", "cpu:0"}));
  EXPECT_EQ(model(x5()).to_vector<double>(), y5());
  EXPECT_EQ((ls::DataParallel{L0{}, {0, 1}, 1}.output_device()), ls::Device("cpu:1"));
  EXPECT_EQ((ls::DataParallel{L0{}, {0, 1}, {.output_device = "cpu"}}.device_ids()),
            first_devices(2));
  EXPECT_EQ((ls::DataParallel{L0{}, {0}}.device_ids()), first_devices(1));
  L0 layer;
  ls::to(layer, 0);
  EXPECT_EQ(ls::data_parallel(layer, x5(), {0, 1}).to_vector<double>(), y5());
}

}  // namespace data_parallel_options_test
