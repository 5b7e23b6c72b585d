// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/data/dataloader.hpp>
#include <lockstep/data/dataset.hpp>
#include <lockstep/data/prefetch.hpp>
#include <lockstep/distributed/run.hpp>
#include <lockstep/nn/linear.hpp>
#include <lockstep/nn/loss.hpp>
#include <lockstep/ops/loss.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/optim/adam.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/parallel/criterion.hpp>
#include <lockstep/parallel/data_parallel.hpp>
#include <lockstep/profile/profiler.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/random.hpp>

#include "profile/rows.hpp"
#include "support/devices.hpp"
#include "support/gate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <thread>
#include <vector>

// The ranges that the library marks by itself.
namespace lockstep::profile {
namespace library_ranges_test {

using testing::first_devices;
using testing::merge_rows;
using testing::names_in;
using testing::nothing_crosses;
using testing::rows_of;
using Names = std::vector<std::string>;

struct Net {
  nn::Linear fc1{512, 64}, fc2{64, 4};
  Tensor forward(const Tensor& x) { return fc2(relu(fc1(x))); }
};

std::size_t count(const Names& names, const std::string& name) {
  return static_cast<std::size_t>(std::count(names.begin(), names.end(), name));
}

// A name is there, and all its ranges are in this row.
::testing::AssertionResult only_in(const std::vector<FunctionEvent>& events,
                                   const std::string& name, const std::string& row) {
  std::set<std::string> rows;
  for (const FunctionEvent& event : events) {
    if (event.name == name) rows.insert(event.row);
  }
  if (rows == std::set<std::string>{row}) return ::testing::AssertionSuccess();
  auto failure = ::testing::AssertionFailure() << name << " is in";
  for (const std::string& each : rows) failure << " \"" << each << '"';
  return failure;
}

template <class Optimizer>
std::vector<FunctionEvent> events_of_a_step(std::size_t device_count) {
  DataParallel model{Net{}, first_devices(device_count)};
  Optimizer optimizer{model.parameters()};
  const Tensor input = randn({64, 512});
  const Tensor target = randn({64, 4});
  Profiler profiler;
  for (int step = 0; step < 2; ++step) {
    const Tensor loss = mse_loss(model(input), target.to(model.output_device()));
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  }
  return profiler.events();
}

TEST(LibraryRanges, OfAStepOnTwoDevicesAreInTheirRows) {
  std::vector<FunctionEvent> events = events_of_a_step<optim::SGD>(2);
  EXPECT_TRUE(nothing_crosses(events));
  merge_rows(events);
  Names rows = rows_of(events);
  std::erase(rows, "thread");
  EXPECT_EQ(rows, (Names{"main", "cpu:0 compute", "cpu:0 copy", "cpu:1 compute", "cpu:1 copy"}));
  for (const char* name : {"replicate", "broadcast"}) EXPECT_TRUE(only_in(events, name, "main"));
  for (const char* name : {"optimizer", "reduce"}) {
    EXPECT_TRUE(only_in(events, name, "cpu:0 compute"));
  }
  const Names main = names_in(events, "main");
  const auto scatters = std::count_if(events.begin(), events.end(),
                                      [](const auto& event) { return event.name == "scatter"; });
  EXPECT_EQ(scatters, 2 + 2);  // and gather's backward
  EXPECT_EQ(count(main, "gather"), 2U);
  EXPECT_EQ(count(main, "replicate"), 2U);
  EXPECT_EQ(count(main, "backward"), 2U);
  for (const char* row : {"cpu:0 compute", "cpu:1 compute"}) {
    EXPECT_EQ(count(names_in(events, row), "apply"), 2U) << row;
    EXPECT_EQ(count(names_in(events, row), "backward"), 2U) << row;
  }
  EXPECT_EQ(count(names_in(events, "cpu:0 compute"), "optimizer"), 2U);
  EXPECT_GE(count(names_in(events, "cpu:1 copy"), "copy"), 2U);
  // Half of the input, of the 512 · 64 weights, of the gradient.
  const auto copied = [&](std::uint64_t bytes) {
    return std::any_of(events.begin(), events.end(), [&](const FunctionEvent& event) {
      return event.name == "copy" && event.bytes == bytes && event.row == "cpu:1 copy";
    });
  };
  EXPECT_TRUE(copied(std::uint64_t{32} * 512 * 4));
  EXPECT_TRUE(copied(std::uint64_t{512} * 64 * 4));
}

TEST(LibraryRanges, OfAStepOnOneDevice) {
  const std::vector<FunctionEvent> events = events_of_a_step<optim::Adam>(1);
  EXPECT_TRUE(nothing_crosses(events));
  for (const char* name : {"apply", "optimizer"}) {
    EXPECT_TRUE(only_in(events, name, "cpu:0 compute"));
  }
  EXPECT_EQ(count(names_in(events, "cpu:0 compute"), "backward"), 2U);
  EXPECT_EQ(count(names_in(events, "main"), "backward"), 2U);
}

TEST(LibraryRanges, OfThePrimitivesByHand) {
  const std::vector<Device> devices = first_devices(2);
  nn::Linear module{6, 2};
  to(module, devices[0]);
  const Tensor input = randn({5, 6});
  Profiler profiler;
  const auto inputs = scatter(input, devices);
  auto replicas = replicate(module, devices);
  const auto outputs = parallel_apply(replicas, inputs);
  (void)gather(outputs, devices[0]);
  const std::vector<FunctionEvent>& events = profiler.events();
  EXPECT_EQ(gather(inputs, Device()).to_vector<float>(), input.to_vector<float>());
  for (const char* name : {"scatter", "replicate", "gather"}) {
    EXPECT_TRUE(only_in(events, name, "main"));
  }
  EXPECT_EQ(count(names_in(events, "cpu:0 compute"), "apply"), 1U);
  EXPECT_EQ(count(names_in(events, "cpu:1 compute"), "apply"), 1U);
}

TEST(LibraryRanges, OfAModuleWithoutParametersAreInTheThread) {
  struct Doubling {
    Tensor forward(const Tensor& x) { return x * 2; }
  };
  std::vector<Doubling> modules(1);
  const std::vector<Tensor> inputs{randn({2})};
  Profiler profiler;
  (void)parallel_apply(modules, inputs);
  EXPECT_TRUE(only_in(profiler.events(), "apply", "main"));
}

// The model and the criterion of two programs at once share the devices' rows.
TEST(LibraryRanges, OfTwoThreadsOnTheSameDevicesDoNotCross) {
  Profiler profiler;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([] {
        DataParallelModel model{Net{}, first_devices(2)};
        DataParallelCriterion criterion{nn::MSELoss{}};
        for (int step = 0; step < 3; ++step) {
          criterion(model(randn({64, 512})), randn({64, 4})).backward();
        }
      });
    }
  }
  const std::vector<FunctionEvent>& events = profiler.events();
  EXPECT_TRUE(nothing_crosses(events));
  EXPECT_EQ(std::count_if(events.begin(), events.end(),
                          [](const auto& event) { return event.name == "apply"; }),
            2 * 2 * 3 * 2);
}

TEST(LibraryRanges, OfRanksAreInTheRowsOfTheirCommunicationThreads) {
  Profiler profiler;
  distributed::run(first_devices(2), [](const distributed::ProcessGroup& group) {
    group.all_reduce(ones({3}, {.device = group.device()})).wait();
    group.barrier().wait();
  });
  const std::vector<FunctionEvent>& events = profiler.events();
  for (const char* row : {"communication 0", "communication 1"}) {
    EXPECT_EQ(names_in(events, row), (Names{"all_reduce", "barrier"})) << row;
  }
}

// A range of the loader for each batch in its worker's row, one of prefetch in its thread's.
TEST(LibraryRanges, OfALoaderAndOfPrefetchAreInTheRowsOfTheirThreads) {
  data::DataLoader loader{data::TensorDataset{zeros({64, 3})},
                          {.batch_size = 16, .num_workers = 1}};
  Profiler profiler;
  for (const auto& batch : data::prefetch(loader, first_devices(2))) (void)batch;
  const std::vector<FunctionEvent>& events = profiler.events();
  EXPECT_EQ(names_in(events, "ls-loader-0"), (Names{"loader", "loader", "loader", "loader"}));
  EXPECT_EQ(count(names_in(events, "ls-prefetch"), "prefetch"), 4U);
  EXPECT_TRUE(only_in(events, "loader", "ls-loader-0"));
  EXPECT_TRUE(only_in(events, "prefetch", "ls-prefetch"));
}

// A copy is recorded when it runs, not when it is issued: here while a range of the caller is open
// that began when the copy had long been issued.
TEST(LibraryRanges, ACopyIsTimedWhereItRuns) {
  const Tensor source = randn({1 << 16});
  Profiler profiler;
  {
    testing::Gate gate;
    gate.hold(copy_stream("cpu:1"));
    const Tensor chunk = comm::scatter(source, {Device("cpu:1")})[0];
    const RecordFunction range("behind the issue");
    gate.open();
    copy_stream("cpu:1").synchronize();
  }
  const std::vector<FunctionEvent>& events = profiler.events();
  ASSERT_EQ(names_in(events, "main"), (Names{"scatter", "behind the issue"}));
  ASSERT_EQ(names_in(events, "cpu:1 copy"), (Names{"copy"}));
  EXPECT_GE(events[2].begin_ns, events[1].begin_ns);
  EXPECT_LE(events[2].end_ns, events[1].end_ns);
}

}  // namespace library_ranges_test
}  // namespace lockstep::profile
