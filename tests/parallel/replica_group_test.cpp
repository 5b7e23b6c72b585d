// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/autograd/inference_mode.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/pointwise.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/parallel/criterion.hpp>
#include <lockstep/parallel/data_parallel.hpp>
#include <lockstep/parallel/replica_group.hpp>

#include "parallel/layers.hpp"
#include "support/devices.hpp"
#include "support/expect_error.hpp"
#include "support/gate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace ls = lockstep;
using ls::testing::f64;
using ls::testing::first_devices;
using ls::testing::throws;

namespace replica_group_test {

using Values = std::vector<double>;

// Subtracts the mean of the whole batch, wherever its rows are, and keeps a running mean of it.
struct Centre {
  ls::Parameter gain{f64({2}, {1})};
  ls::Buffer running{f64({0}, {1})};

  ls::Tensor forward(const ls::Tensor& x) const {
    ls::Tensor sum = x.sum().reshape({1});
    ls::Tensor rows = ls::full({1}, static_cast<double>(x.size(0)), sum.options());
    if (ls::replicas::synchronized()) {
      sum = ls::replicas::all_reduce(sum);
      rows = ls::replicas::all_reduce(rows);
    }
    const ls::Tensor mean = sum / rows;
    {
      const ls::NoGradGuard guard;
      running.copy_((running + mean) * 0.5);
    }
    return (x - mean) * gain;
  }
};

ls::Tensor batch() {
  const ls::Tensor x = f64({1, 2, 4, 8, 16, 32, 64}, {7});
  x.requires_grad_();
  return x;
}

TEST(Replicas, StatisticsOverAllReplicasAreThoseOfOneDevice) {
  const auto weights = f64({1, -2, 3, -4, 5, -6, 7}, {7}, "cpu:0");
  ls::DataParallel one{Centre{}, first_devices(1)};
  const ls::Tensor x = batch();
  const ls::Tensor y = one(x);
  (y * y * weights).sum().backward();
  for (const std::size_t k : {2U, 3U, 4U}) {
    ls::DataParallel model{
        Centre{}, first_devices(k), {.buffers = ls::ReplicaBuffers::synchronized}};
    const ls::Tensor input = batch();
    const ls::Tensor output = model(input);
    const auto expect_near = [&](const ls::Tensor& got, const ls::Tensor& want) {
      const Values a = got.to_vector<double>();
      const Values b = want.to_vector<double>();
      ASSERT_EQ(a.size(), b.size());
      for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-9) << k << ' ' << i;
    };
    expect_near(output, y);
    (output * output * weights).sum().backward();
    expect_near(input.grad(), x.grad());
    expect_near(model.module().gain.grad(), one.module().gain.grad());
    expect_near(model.module().running, one.module().running);
  }
}

TEST(Replicas, WithoutTheOptionEachHasItsOwn) {
  ls::DataParallel model{Centre{}, first_devices(2)};
  EXPECT_EQ(model(f64({1, 3, 5, 7}, {4})).to_vector<double>(), (Values{-2, 2, -2, 2}));
}

TEST(Replicas, GradientsOfGradientsPassThroughASum) {
  struct Product {
    ls::Tensor forward(const ls::Tensor& x) const {
      return ls::replicas::all_reduce(x * x * x).reshape({1});
    }
  };
  const ls::Tensor x = f64({2, 3}, {2});
  x.requires_grad_();
  ls::DataParallel model{Product{}, first_devices(2)};
  const ls::Tensor y = model(x);  // both are 2³ + 3³
  EXPECT_EQ(y.to_vector<double>(), (Values{35, 35}));
  const ls::Tensor grad = ls::autograd::grad({y.sum()}, {x}, {}, true, true)[0];
  EXPECT_EQ(grad.to_vector<double>(), (Values{24, 54}));  // 2 · 3x²
  EXPECT_EQ(ls::autograd::grad({grad.sum()}, {x})[0].to_vector<double>(), (Values{24, 36}));
}

// Three replicas of a group that come to the sum in the order given.
class InOrder {
 public:
  explicit InOrder(std::vector<std::size_t> order) : order_(std::move(order)) {}

  // Runs body(replica, sum) for each, where sum(tensor) meets the others.
  void run(const auto& body) {
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < order_.size(); ++i) {
      threads.emplace_back([&, i] {
        replica_ = i;
        body(i, [&](const ls::Tensor& tensor) {
          const auto turn = std::find(order_.begin(), order_.end(), i) - order_.begin();
          for (int came = came_; came != turn; came = came_) came_.wait(came);
          return group_.all_reduce(i, tensor);
        });
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  // A replica asks whether others have ended once it is counted among those that wait.
  bool none_has_ended() {
    const auto came = static_cast<std::size_t>(came_);
    if (came < order_.size() && order_[came] == replica_) {
      ++came_;
      came_.notify_all();
    }
    return false;
  }

  static inline thread_local std::size_t replica_ = 0;
  const std::vector<std::size_t> order_;
  std::atomic<int> came_{0};
  const std::function<bool()> any_ended_ = [this] { return none_has_ended(); };
  ls::detail::ReplicaGroup group_{3, true, any_ended_};
};

TEST(Replicas, EachRecordsTheSumIfItRecordsWhoeverComesLast) {
  for (const bool inference : {false, true}) {
    std::vector<std::size_t> order{0, 1, 2};
    do {
      std::vector<ls::Tensor> inputs;
      std::vector<ls::Tensor> sums(3);
      for (const char* device : {"cpu:0", "cpu:1", "cpu:2"}) {
        inputs.push_back(f64({static_cast<double>(inputs.size()) + 1}, {1}, device));
        inputs.back().requires_grad_();
      }
      InOrder(order).run([&](std::size_t i, const auto& sum) {
        const ls::GradModeGuard records(i != 1);
        const ls::InferenceModeGuard infers(inference && i == 1);
        const ls::GradModeGuard again(i != 1);
        sums[i] = sum(inputs[i]);
      });
      for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(sums[i].to_vector<double>(), Values{6});
        EXPECT_EQ(sums[i].requires_grad(), i != 1) << i;
        EXPECT_FALSE(i != 1 && sums[i].is_inference());
      }
      (sums[0] * 3.0).sum().backward({}, true);
      (sums[2] * 5.0).sum().backward();
      EXPECT_EQ(inputs[0].grad().to_vector<double>(), Values{8});
      EXPECT_FALSE(inputs[1].grad().defined());
      EXPECT_EQ(inputs[2].grad().to_vector<double>(), Values{8});
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

TEST(Replicas, OutsideThereIsOne) {
  EXPECT_EQ(ls::replicas::count(), 1U);
  EXPECT_EQ(ls::replicas::index(), 0U);
  EXPECT_FALSE(ls::replicas::synchronized());
  ls::replicas::barrier();
  const ls::Tensor x = f64({1}, {1});
  EXPECT_TRUE(ls::replicas::all_reduce(x).is_same(x));
}

TEST(Replicas, TheyKnowTheirPlaceAndMeetAsOftenAsTheyLike) {
  struct Ring {
    std::atomic<int>* arrived;
    ls::Tensor forward(const ls::Tensor& x) const {
      EXPECT_EQ(ls::replicas::count(), 6U);
      for (int round = 1; round <= 20; ++round) {
        arrived->fetch_add(1);
        ls::replicas::barrier();
        EXPECT_EQ(arrived->load(), 6 * round);
        ls::replicas::barrier();
      }
      return x + static_cast<double>(ls::replicas::index());
    }
  };
  std::atomic<int> arrived{0};
  ls::DataParallel model{Ring{&arrived}, first_devices(6)};
  EXPECT_EQ(model(ls::zeros({6})).to_vector<float>(), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(ls::replicas::count(), 1U);
}

TEST(Replicas, OneThatThrowsReleasesThoseThatWaitForIt) {
  struct Failing {
    ls::Tensor forward(const ls::Tensor& x) const {
      if (ls::replicas::index() == 2) throw std::out_of_range("no more data");
      return ls::replicas::all_reduce(x);
    }
  };
  ls::DataParallel model{Failing{}, first_devices(4)};
  const auto call = [&] { model(ls::ones({4})); };
  EXPECT_TRUE(throws<std::out_of_range>(call, "replica 2", "cpu:2", "no more data"));
  try {
    call();
  } catch (const std::out_of_range& error) {
    EXPECT_EQ(std::string(error.what()).find("waits for the others"), std::string::npos)
        << "those that were released are not failures";
  }
}

TEST(Replicas, AnErrorOfOnesOwnAroundAReleaseIsAFailure) {
  struct Failing {
    ls::Tensor forward(const ls::Tensor& x) const {
      if (ls::replicas::index() == 2) return x;
      try {
        return ls::replicas::all_reduce(x);
      } catch (const ls::ReplicaReleased&) {
        if (ls::replicas::index() == 0) throw;
        std::throw_with_nested(std::runtime_error("batch 17"));
      }
    }
  };
  ls::DataParallel model{Failing{}, first_devices(3)};
  EXPECT_TRUE(throws<std::runtime_error>([&] { model(ls::ones({3})); }, "replica 1", "batch 17"));
}

TEST(Replicas, TheCauseComesFirstWhereEveryReplicaWrapsWhatItCatches) {
  struct Failing {
    ls::Tensor forward(const ls::Tensor& x) const {
      try {
        if (ls::replicas::index() == 2) throw ls::ValueError("the cause");
        return ls::replicas::all_reduce(x);
      } catch (...) {
        std::throw_with_nested(
            std::runtime_error("layer " + std::to_string(ls::replicas::index())));
      }
    }
  };
  ls::DataParallel model{Failing{}, first_devices(3)};
  try {
    model(ls::ones({3}));
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(dynamic_cast<const ls::ReplicaFailure&>(error).replica(), 2U);
    const std::string text = error.what();
    EXPECT_LT(text.find("layer 2"), text.find("layer 0")) << text;
    EXPECT_NE(text.find("in replica 1 on device cpu:1.\nlayer 1"), std::string::npos) << text;
  }
}

TEST(Replicas, OneThatReturnsEarlyReleasesThemToo) {
  struct Early {
    ls::Tensor forward(const ls::Tensor& x) const {
      if (ls::replicas::index() == 0) return x;
      return ls::replicas::all_reduce(x);
    }
  };
  ls::DataParallel model{Early{}, first_devices(3)};
  EXPECT_TRUE(throws<ls::ReplicaReleased>([&] { model(ls::ones({3})); }, "replica 1",
                                          "one of them has ended"));
}

TEST(Replicas, TensorsThatDoNotFitAreAnErrorForAll) {
  struct Uneven {
    ls::Tensor forward(const ls::Tensor& x) const { return ls::replicas::all_reduce(x); }
  };
  ls::DataParallel model{Uneven{}, first_devices(2)};
  EXPECT_TRUE(
      throws<ls::ShapeError>([&] { model(ls::ones({3})); }, "input 1", "got [1]", "expected [2]"));
  struct Mixed {
    ls::Tensor forward(const ls::Tensor& x) const {
      if (ls::replicas::index() == 0) {
        ls::replicas::barrier();
        return x;
      }
      return ls::replicas::all_reduce(x);
    }
  };
  ls::DataParallel mixed{Mixed{}, first_devices(2)};
  EXPECT_TRUE(throws<ls::ValueError>([&] { mixed(ls::ones({2})); }, "replica 0", "replica 1",
                                     "brings a tensor"));
}

TEST(Replicas, GroupsAreNested) {
  struct Inner {
    ls::Tensor forward(const ls::Tensor& x) const { return ls::replicas::all_reduce(x); }
  };
  struct Outer {
    ls::DataParallel<Inner> inner{Inner{}, first_devices(2)};
    ls::Tensor forward(const ls::Tensor& x) {
      const ls::Tensor y = inner(x);  // the sum of this replica's two halves, twice
      EXPECT_EQ(ls::replicas::count(), 2U);
      return ls::replicas::all_reduce(y.to(x.device()));
    }
  };
  ls::DataParallel model{Outer{}, first_devices(2)};
  EXPECT_EQ(model(f64({1, 2, 3, 4}, {4})).to_vector<double>(), (Values{10, 10, 10, 10}));
}

TEST(Replicas, OneChunkInsideAReplicaMeetsNobody) {
  struct Inner {
    ls::Tensor forward(const ls::Tensor& x) const { return ls::replicas::all_reduce(x.sum()); }
  };
  struct Outer {
    ls::DataParallel<Inner> inner{
        Inner{}, first_devices(2), {.scalar_outputs = ls::Reduction::mean}};
    ls::Tensor forward(const ls::Tensor& x) { return inner(x).reshape({1}); }
  };
  ls::DataParallel model{Outer{}, first_devices(2)};
  // Two rows for the first replica, which has two inner ones; one row for the second.
  EXPECT_EQ(model(f64({1, 2, 4}, {3})).to_vector<double>(), (Values{3, 4}));
  EXPECT_EQ(model(f64({1, 2}, {2})).to_vector<double>(), (Values{1, 2}));
}

TEST(Replicas, TheSumWaitsForStreamsThatReplicasHaveSet) {
  std::vector<ls::Stream> streams;
  for (const ls::Device device : first_devices(2)) streams.push_back(ls::pool_stream(device));
  const ls::testing::Queued queued(streams);
  const ls::testing::QueuedCompute compute_queued;
  struct OnItsOwnStream {
    const std::vector<ls::Stream>* streams;
    ls::Tensor forward(const ls::Tensor& x) const {
      const ls::Stream& own = (*streams)[ls::replicas::index()];
      own.wait_stream(ls::current_stream(x.device()));
      x.record_stream(own);
      ls::Tensor sum;
      {
        const ls::StreamGuard guard(own);
        sum = ls::replicas::all_reduce(x + 1000);
      }
      ls::current_stream(x.device()).wait_stream(own);
      return sum;
    }
  };
  for (const std::size_t held : {0U, 1U}) {
    ls::testing::Gate gate;
    const auto inputs = ls::scatter(f64({1, 2}, {2}), first_devices(2));
    ls::synchronize("cpu:1");
    gate.hold(streams[held]);
    ls::DataParallelModel model{OnItsOwnStream{&streams}, first_devices(2)};
    const auto sums = model(inputs);
    // Long enough for a sum that does not wait to read what is not there yet.
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
    while (!streams[1 - held].query() && std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
    }
    EXPECT_FALSE(streams[1 - held].query());
    gate.open();
    for (const ls::Tensor& sum : sums) EXPECT_EQ(sum.to_vector<double>(), Values{2003});
  }
}

}  // namespace replica_group_test
