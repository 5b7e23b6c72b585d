// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/parallel/parallel_apply.hpp>
#include <lockstep/parallel/replica_group.hpp>
#include <lockstep/parallel/replicate.hpp>

#include "parallel/layers.hpp"
#include "support/devices.hpp"
#include "support/expect_error.hpp"
#include "support/operator_new.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

namespace ls = lockstep;
using ls::testing::f64;
using ls::testing::first_devices;
using ls::testing::L0;
using ls::testing::throws;

namespace parallel_apply_test {

using Values = std::vector<double>;

TEST(ParallelApply, P01ABareTensorAndATupleOfOneAreTheSame) {
  std::vector<L0> modules(2);
  const std::vector<ls::Tensor> bare = {f64({1, 0}, {1, 2}), f64({0, 1}, {1, 2})};
  const std::vector<std::tuple<ls::Tensor>> tuples = {{bare[0]}, {bare[1]}};
  const auto a = ls::parallel_apply(modules, bare);
  const auto b = ls::parallel_apply(modules, tuples);
  EXPECT_EQ(a[0].to_vector<double>(), (Values{1.5, 2.5}));
  EXPECT_EQ(a[1].to_vector<double>(), (Values{2.5, 3.5}));
  EXPECT_EQ(b[1].to_vector<double>(), a[1].to_vector<double>());
}

struct Counting {
  int forward(int a, int b) const { return 10 * a + b; }
  int forward(const std::map<std::string, int>& map) const { return map.at("a"); }
};

TEST(ParallelApply, P02ATupleIsTheArgumentListAMapIsOneArgument) {
  std::vector<Counting> modules(2);
  const std::vector<std::tuple<int, int>> lists = {{1, 2}, {3, 4}};
  EXPECT_EQ(ls::parallel_apply(modules, lists), (std::vector<int>{12, 34}));
  const std::vector<std::map<std::string, int>> maps(2, {{"a", 1}});
  EXPECT_EQ(ls::parallel_apply(modules, maps), (std::vector<int>{1, 1}));
}

TEST(ParallelApply, P03ListsThatDifferInLength) {
  std::vector<L0> modules(2);
  const std::vector<ls::Tensor> one = {f64({1, 0}, {1, 2})};
  const std::vector<ls::Tensor> two(2, one[0]);
  EXPECT_TRUE(throws<ls::ValueError>([&] { ls::parallel_apply(modules, one); },
                                     "number of modules 2", "number of inputs 1"));
  EXPECT_TRUE(throws<ls::ValueError>([&] { ls::parallel_apply(modules, two, first_devices(1)); },
                                     "number of modules 2", "number of devices 1"));
}

struct AddsKwargs {
  int forward(int x, int kwargs) const { return x + kwargs; }
};

TEST(ParallelApply, P03ListsWithKeywordArgumentsThatDifferInLength) {
  std::vector<AddsKwargs> modules(2);
  using Ints = std::vector<int>;
  EXPECT_EQ(ls::parallel_apply(modules, Ints{1, 2}, Ints{10, 20}), (Ints{11, 22}));
  EXPECT_TRUE(throws<ls::ValueError>(
      [&] {
        ls::parallel_apply(modules, Ints{1}, Ints{1, 2});
      },
      "number of modules 2", "number of inputs 1"));
  EXPECT_TRUE(throws<ls::ValueError>(
      [&] {
        ls::parallel_apply(modules, Ints{1, 2}, Ints{1});
      },
      "number of modules 2", "number of kwargs_tup 1"));
}

struct WhereAmI {
  std::thread::id forward(int) const { return std::this_thread::get_id(); }
};

TEST(ParallelApply, P04OneModuleRunsOnTheCallersThread) {
  std::vector<WhereAmI> one(1);
  EXPECT_EQ(ls::parallel_apply(one, std::vector<int>{1})[0], std::this_thread::get_id());
  std::vector<WhereAmI> three(3);
  const auto threads = ls::parallel_apply(three, std::vector<int>{1, 2, 3});
  EXPECT_EQ(threads[0], std::this_thread::get_id());
  EXPECT_NE(threads[1], threads[0]);
  EXPECT_NE(threads[2], threads[1]);
}

struct Failing {
  int forward(int i) const {
    if (i == 1) throw std::out_of_range("wonderful");
    if (i == 2) throw ls::ShapeError("also wrong");
    if (i == 3) throw 42;
    return i;
  }
};

TEST(ParallelApply, P05X07TheLowestErrorNamesReplicaAndDeviceAndKeepsItsType) {
  std::vector<Failing> modules(3);
  const std::vector<int> inputs = {0, 1, 2};
  EXPECT_TRUE(
      throws<std::out_of_range>([&] { ls::parallel_apply(modules, inputs, first_devices(3)); },
                                "Caught std::out_of_range in replica 1 on device cpu:1",
                                "wonderful", "replica 2 on device cpu:2", "also wrong"));
  try {
    ls::parallel_apply(modules, inputs, first_devices(3));
    FAIL();
  } catch (const ls::ReplicaFailure& failure) {
    EXPECT_EQ(failure.replica(), 1U);
    EXPECT_EQ(failure.device(), ls::Device("cpu:1"));
    try {
      std::rethrow_if_nested(failure);
      FAIL() << "nothing is nested";
    } catch (const std::out_of_range& original) {
      EXPECT_STREQ(original.what(), "wonderful");
    }
  }
}

struct Unreadable {
  std::size_t forward(int /*i*/) const { return ls::Tensor().sizes().size(); }
};

TEST(ParallelApply, AnErrorOfATensorThatCannotBeReadKeepsItsType) {
  std::vector<Unreadable> modules(2);
  EXPECT_TRUE(throws<ls::OperandError>(
      [&] {
        ls::parallel_apply(modules, std::vector<int>{0, 1}, first_devices(2));
      },
      "Caught lockstep::OperandError in replica 0 on device cpu:0", "undefined"));
}

class OutOfPatience : public std::exception {
 public:
  const char* what() const noexcept override { return "no more"; }
  int waited() const { return 7; }
};

struct Impatient {
  int forward(int i) const {
    if (i == 1) throw OutOfPatience();
    return i;
  }
};

TEST(ParallelApply, AnExceptionOfTheUsersOwnTypeIsNestedInAnErrorWithItsText) {
  std::vector<Impatient> modules(2);
  const std::vector<int> inputs = {0, 1};
  const auto apply = [&] { ls::parallel_apply(modules, inputs, first_devices(2)); };
  EXPECT_TRUE(throws<ls::Error>(apply, "OutOfPatience in replica 1 on device cpu:1", "no more"));
  try {
    apply();
    FAIL();
  } catch (const ls::ReplicaFailure& failure) {
    try {
      std::rethrow_if_nested(failure);
      FAIL() << "nothing is nested";
    } catch (const OutOfPatience& original) {
      EXPECT_EQ(original.waited(), 7);
    }
  }
}

TEST(ParallelApply, P12AnExceptionOfAnyTypeNamesItsReplica) {
  std::vector<Failing> modules(2);
  EXPECT_TRUE(throws<ls::Error>(
      [&] {
        ls::parallel_apply(modules, std::vector<int>{0, 3}, first_devices(2));
      },
      "Caught int in replica 1 on device cpu:1"));
}

struct OutOfMemory {
  int forward(int) const { throw std::bad_alloc(); }
};

TEST(ParallelApply, ABadAllocComesOutAsOneAndNamesItsReplica) {
  std::vector<OutOfMemory> modules(2);
  const auto apply = [&] { ls::parallel_apply(modules, std::vector<int>{0, 3}, first_devices(2)); };
  EXPECT_TRUE(throws<std::bad_alloc>(apply, "Caught std::bad_alloc in replica 0 on device cpu:0"));
  EXPECT_THROW(apply(), ls::ReplicaFailure);
}

// The names in the text are those of what users catch.
struct FailsWithin {
  int forward(int) const {
    std::vector<Failing> modules(2);
    return ls::parallel_apply(modules, std::vector<int>{2, 0}, first_devices(2))[0];
  }
};

TEST(ParallelApply, AFailureWithinAReplicaOfAReplicaKeepsItsTypeAndItsName) {
  std::vector<FailsWithin> modules(2);
  EXPECT_TRUE(throws<ls::ShapeError>(
      [&] {
        ls::parallel_apply(modules, std::vector<int>{0, 0}, first_devices(2));
      },
      "Caught lockstep::ShapeError in replica 0 on device cpu:0.\nCaught lockstep::ShapeError in "
      "replica 0 on device cpu:0.\nalso wrong"));
}

TEST(ParallelApply, OneModulesExceptionNamesItsReplicaAsWell) {
  std::vector<Failing> one(1);
  const auto apply = [&] { ls::parallel_apply(one, std::vector<int>{1}, first_devices(1)); };
  EXPECT_TRUE(throws<std::out_of_range>(
      apply, "Caught std::out_of_range in replica 0 on device cpu:0.\nwonderful"));
  EXPECT_THROW(apply(), ls::ReplicaFailure);
}

struct CountsThenFails {
  std::atomic<int>* ended;
  int forward(int i) const {
    if (i == 0) throw std::runtime_error("first");
    ++*ended;
    return i;
  }
};

TEST(ParallelApply, AllReplicasFinishBeforeTheErrorIsRaisedAndTheNextCallWorks) {
  std::atomic<int> ended{0};
  std::vector<CountsThenFails> modules(4, CountsThenFails{&ended});
  EXPECT_TRUE(throws<std::runtime_error>(
      [&] {
        ls::parallel_apply(modules, std::vector<int>{0, 1, 2, 3});
      },
      "replica 0"));
  EXPECT_EQ(ended.load(), 3);
  EXPECT_EQ(ls::parallel_apply(modules, std::vector<int>{1, 1, 1, 1}).size(), 4U);
}

// Counts those that live.
struct Counted {
  std::atomic<int>* living;
  explicit Counted(std::atomic<int>& count) : living(&count) { ++*living; }
  Counted(const Counted& other) : living(other.living) { ++*living; }
  Counted& operator=(const Counted&) = delete;
  ~Counted() { --*living; }
};
// Replica 1 throws, and from then on there is no memory.
struct FailsForWantOfMemory {
  std::atomic<int>* living;
  std::optional<ls::testing::OutOfMemory>* scarce;
  Counted forward(int i) const {
    if (i == 1) {
      scarce->emplace(1, true);
      throw ls::ShapeError("wrong");
    }
    return Counted(*living);
  }
};

TEST(ParallelApply, ResultsAreDestroyedWhereThereIsNoMemoryToTellOfTheError) {
  std::atomic<int> living{0};
  std::optional<ls::testing::OutOfMemory> scarce;
  std::vector<FailsForWantOfMemory> modules(4, FailsForWantOfMemory{&living, &scarce});
  const std::vector<int> inputs = {0, 1, 2, 3};
  for (int round = 0; round < 20; ++round) {
    bool thrown = false;
    try {
      ls::parallel_apply(modules, inputs, first_devices(4));
    } catch (const std::bad_alloc&) {
      thrown = true;
    }
    scarce.reset();
    ASSERT_TRUE(thrown);
    ASSERT_EQ(living, 0);
  }
}

struct WaitsForOthers {
  int forward(int i) const {
    ls::replicas::barrier();
    return i;
  }
};

// With a stream of its own for a device, a replica's thread needs memory before it begins: nobody
// may wait for one that never does.
TEST(ParallelApply, AReplicaThatCannotBeginReleasesThoseThatWaitForIt) {
  std::vector<WaitsForOthers> modules(3);
  const std::vector<int> inputs = {0, 1, 2};
  const ls::StreamGuard guard(ls::copy_stream("cpu:1"));
  ls::parallel_apply(modules, inputs, first_devices(3));
  bool failed = true;
  std::uint64_t n = 1;
  for (; failed; ++n) {
    {
      const ls::testing::OutOfMemory scarce(n, false);
      try {
        ls::parallel_apply(modules, inputs, first_devices(3));
      } catch (const std::bad_alloc&) {
      } catch (const ls::Error&) {
      }
    }
    failed = ls::testing::OutOfMemory::has_struck();
    ASSERT_EQ(ls::parallel_apply(modules, inputs, first_devices(3)), inputs);
  }
  EXPECT_GT(n, 2U);
}

struct SeesGradMode {
  bool forward(int) const { return ls::is_grad_enabled(); }
};

TEST(ParallelApply, P08X01GradModeGoesAlong) {
  std::vector<SeesGradMode> modules(4);
  const std::vector<int> inputs(4, 0);
  {
    const ls::NoGradGuard guard;
    for (const bool enabled : ls::parallel_apply(modules, inputs)) EXPECT_FALSE(enabled);
  }
  for (const bool enabled : ls::parallel_apply(modules, inputs)) EXPECT_TRUE(enabled);
}

struct SeesStream {
  ls::Device device;
  bool forward(const ls::Stream& expected) const { return ls::current_stream(device) == expected; }
};

TEST(ParallelApply, CurrentStreamsGoAlong) {
  const ls::Stream mine = ls::pool_stream("cpu:1");
  const ls::StreamGuard guard(mine);
  std::vector<SeesStream> modules = {{"cpu:0"}, {"cpu:1"}};
  const auto seen =
      ls::parallel_apply(modules, std::vector<ls::Stream>{ls::default_stream("cpu:0"), mine});
  EXPECT_TRUE(seen[0]);
  EXPECT_TRUE(seen[1]);
}

struct Meets {
  std::barrier<>* barrier;
  int forward(int i) const {
    barrier->arrive_and_wait();
    return i;
  }
};

TEST(ParallelApply, P11X02FourReplicasMeetInsideForward) {
  std::barrier<> barrier(4);
  std::vector<Meets> modules(4, Meets{&barrier});
  EXPECT_EQ(ls::parallel_apply(modules, std::vector<int>{0, 1, 2, 3}),
            (std::vector<int>{0, 1, 2, 3}));
}

TEST(ParallelApply, P13NoModules) {
  std::vector<L0> none;
  EXPECT_TRUE(ls::parallel_apply(none, std::vector<ls::Tensor>{}).empty());
}

TEST(ParallelApply, P14ResultsAreMovedToTheDevices) {
  struct OnHost {
    ls::Tensor forward(const ls::Tensor& x) const { return x.to("cpu") * 2; }
  };
  std::vector<OnHost> modules(3);
  const std::vector<ls::Device> devices = {"cpu:1", "cpu:0", "cpu"};
  std::vector<ls::Tensor> inputs;
  for (const double value : {1.0, 2.0, 3.0}) {
    inputs.push_back(ls::full({1}, value));
    inputs.back().requires_grad_();
  }
  const std::vector<ls::Tensor> outputs = ls::parallel_apply(modules, inputs, devices);
  for (std::size_t i = 0; i < devices.size(); ++i) {
    EXPECT_EQ(outputs[i].device(), devices[i]);
    EXPECT_EQ(outputs[i].item(), 2 * static_cast<double>(i + 1));
    outputs[i].backward();
    EXPECT_EQ(inputs[i].grad().item(), 2) << "moving them is differentiable";
  }
}

}  // namespace parallel_apply_test
