// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/host/background_threads.hpp>
#include <lockstep/backend/host/host_stream.hpp>
#include <lockstep/distributed/collectives.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/run.hpp>
#include <lockstep/ops/inplace.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/shape.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/from_blob.hpp>
#include <lockstep/tensor/sparse.hpp>

#include "distributed/collective_cases.hpp"
#include "support/devices.hpp"
#include "support/expect_error.hpp"
#include "support/gate.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace ls = lockstep;
namespace dist = lockstep::distributed;
using ls::testing::first_devices;
using ls::testing::throws;

namespace process_group_test {

// A value that one thread sets and others wait for.
class Flag {
 public:
  void set() {
    flag_.store(true, std::memory_order_release);
    flag_.notify_all();
  }
  void wait() const { flag_.wait(false, std::memory_order_acquire); }

 private:
  std::atomic<bool> flag_{false};
};

ls::Tensor ones(const dist::ProcessGroup& group, const ls::Shape& shape) {
  return ls::full(shape, 1, {.device = group.device()});
}

class Worlds : public ::testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Threads, Worlds, ::testing::Values(1, 2, 3, 4, 8),
                         [](const auto& world) { return std::to_string(world.param); });

TEST_P(Worlds, ReduceEveryDtypeByEveryOperationInRankOrder) {
  // 64 elements lie in one cache line or several; 1543 of 8 bytes are more than what is small.
  dist::run(first_devices(GetParam()), [](const dist::ProcessGroup& group) {
    for (const std::size_t count : {0U, 1U, 64U, 1543U})
      ls::testing::expect_reductions(group, count);
  });
}

TEST(Collectives, WithoutAGroupAreThoseOfTheDefaultOne) {
  dist::run(first_devices(2), [](const dist::ProcessGroup& group) {
    const int rank = group.rank();
    const auto number = [&](double value) {
      return ls::full({1}, value, {.device = group.device()});
    };
    const auto value = [](const ls::Tensor& tensor) { return tensor.item(); };
    const std::vector<ls::Tensor> two{number(0), number(0)};
    const std::vector<ls::Tensor> own{number(1 + rank), number(10 + rank)};
    const ls::Tensor pair = ls::zeros({2}, {.device = group.device()});
    const ls::Tensor one = number(0);

    dist::all_gather(two, own[0]);
    EXPECT_EQ(value(two[0]) + 10 * value(two[1]), 21);
    dist::all_gather_into_tensor(pair, own[0]);
    EXPECT_EQ(pair.to_vector<float>(), (std::vector<float>{1, 2}));
    dist::reduce_scatter(one, own);
    EXPECT_EQ(value(one), rank == 0 ? 3 : 21);
    dist::reduce_scatter_tensor(one, pair, dist::ReduceOp::max);
    EXPECT_EQ(value(one), rank == 0 ? 1 : 2);
    dist::scatter(one, rank == 1 ? own : std::vector<ls::Tensor>(), 1);
    EXPECT_EQ(value(one), rank == 0 ? 2 : 11);
    dist::gather(one, rank == 1 ? two : std::vector<ls::Tensor>(), 1);
    EXPECT_EQ(value(two[0]) + 100 * value(two[1]), rank == 0 ? 201 : 1102);
    dist::barrier();
    if (rank == 0) dist::send(own[1], 1);
    if (rank == 1) dist::recv(one, 0);
    EXPECT_EQ(value(one), rank == 0 ? 2 : 10);
  });
}

TEST_P(Worlds, MoveEveryDtype) {
  dist::run(first_devices(GetParam()), [](const dist::ProcessGroup& group) {
    for (const std::size_t count : {0U, 1U, 64U, 5001U}) ls::testing::expect_moves(group, count);
  });
}

TEST_P(Worlds, ReduceAndMoveAMebibyte) {
  dist::run(first_devices(GetParam()), [](const dist::ProcessGroup& group) {
    constexpr std::size_t kCount = (std::size_t{1} << 18) + 1;
    const auto tensor = ls::testing::brought_tensor<float>(group.rank(), kCount, group.device());
    group.all_reduce(tensor, dist::ReduceOp::avg).wait();
    EXPECT_TRUE(ls::testing::same_bits<float>(tensor, [&](std::size_t i) {
      return ls::testing::combined<float>(dist::ReduceOp::avg, group.size(), i);
    }));
    const auto copy = ls::testing::brought_tensor<float>(group.rank(), kCount, group.device());
    group.broadcast(copy, group.size() - 1).wait();
    EXPECT_TRUE(ls::testing::same_bits<float>(
        copy, [&](std::size_t i) { return ls::testing::brought<float>(group.size() - 1, i); }));
  });
}

TEST_P(Worlds, KeepManyOperationsInOrder) {
  dist::run(first_devices(GetParam()),
            [](const dist::ProcessGroup& group) { ls::testing::expect_many_in_flight(group); });
}

TEST_P(Worlds, HaveGroupsWithin) {
  dist::run(first_devices(GetParam()),
            [](const dist::ProcessGroup& group) { ls::testing::expect_new_groups(group); });
}

TEST_P(Worlds, GiveTheSameBlockingOrNot) {
  dist::run(first_devices(GetParam()), [](const dist::ProcessGroup& group) {
    ls::testing::expect_reductions(group.blocking(), 37);
    ls::testing::expect_many_in_flight(group.blocking());
    const ls::Tensor one = ones(group, {3});
    dist::all_reduce(one);
    EXPECT_EQ(one.to_vector<float>(), std::vector<float>(3, static_cast<float>(group.size())));
    // Some in the background and some not, ever the same order.
    for (int i = 0; i < 50; ++i) {
      const ls::Tensor a = ones(group, {5});
      const ls::Tensor b = ones(group, {2000});
      const dist::Work first = group.all_reduce(a);
      if ((i + group.rank()) % 2 == 0) first.wait();
      (void)group.blocking().all_reduce(b);
      first.wait();
      EXPECT_EQ(a.to_vector<float>(), std::vector<float>(5, static_cast<float>(group.size())));
      EXPECT_EQ(b.to_vector<float>()[1999], static_cast<float>(group.size()));
    }
  });
}

TEST(ProcessGroup, IsAHandleThatMayBeUndefined) {
  const dist::ProcessGroup none;
  EXPECT_FALSE(none.defined());
  EXPECT_TRUE(throws<ls::ValueError>([&] { (void)none.rank(); }, "undefined"));
  dist::run(first_devices(3), [](const dist::ProcessGroup& group) {
    EXPECT_EQ(group.size(), 3);
    EXPECT_EQ(group.device().index, group.rank());
    EXPECT_EQ(dist::get_rank(), group.rank());
    EXPECT_EQ(dist::get_world_size(), 3);
  });
}

TEST(ProcessGroup, TakesTensorsOfAnyStrides) {
  dist::run(first_devices(3), [](const dist::ProcessGroup& group) {
    const auto rank = static_cast<double>(group.rank());
    const ls::Tensor whole = ls::full({4, 6}, rank, {.device = group.device()});
    const ls::Tensor columns = whole.t().narrow(0, 1, 2);  // 2 × 4, two columns of `whole`
    ASSERT_FALSE(columns.is_contiguous());
    const std::uint64_t version = whole.version();
    group.all_reduce(columns).wait();
    EXPECT_GT(whole.version(), version);
    const std::vector<float> values = whole.to_vector<float>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(values[i], i % 6 == 1 || i % 6 == 2 ? 3 : rank) << i;
    }
    // Read only, it is left alone.
    std::vector<ls::Tensor> outputs;
    for (int r = 0; r < 3; ++r) outputs.push_back(ones(group, {2, 4}).t());
    group.all_gather(outputs, columns.t()).wait();
    EXPECT_EQ(outputs[2].to_vector<float>(), std::vector<float>(8, 3));
  });
}

// A sum that is divided into pieces, whose result goes to memory of its own, several times.
TEST(ProcessGroup, ARankAloneKeepsWhatItBrings) {
  dist::run(first_devices(1), [](const dist::ProcessGroup& group) {
    const ls::Tensor tensor = ones(group, {2, 50000}).t();
    for (const double sum : {2e5, 4e5, 8e5, 16e5}) {
      tensor.mul_(2.0);
      group.all_reduce(tensor).wait();
      EXPECT_EQ(tensor.sum().item(), sum);
    }
  });
}

TEST(ProcessGroup, WritesParametersAndCountsTheChange) {
  dist::run(first_devices(2), [](const dist::ProcessGroup& group) {
    const ls::Tensor leaf =
        ls::full({2}, group.rank(), {.device = group.device(), .requires_grad = true});
    const std::uint64_t before = leaf.version();
    group.broadcast(leaf, 1).wait();
    EXPECT_EQ(leaf.to_vector<float>(), (std::vector<float>{1, 1}));
    EXPECT_TRUE(leaf.is_leaf());
    EXPECT_EQ(leaf.version() > before, group.rank() == 0);
  });
}

TEST(ProcessGroup, GathersInPlace) {
  dist::run(first_devices(4), [](const dist::ProcessGroup& group) {
    for (const std::int64_t count : {2, 3000}) {
      const ls::Tensor all = ls::zeros({4 * count}, {.device = group.device()});
      const ls::Tensor mine = all.narrow(0, group.rank() * count, count);
      mine.fill_(group.rank() + 1);
      group.all_gather_into_tensor(all, mine).wait();
      for (int r = 0; r < 4; ++r) {
        EXPECT_EQ(all.narrow(0, r * count, count).to_vector<float>(),
                  std::vector<float>(static_cast<std::size_t>(count), static_cast<float>(r + 1)));
      }
      group.reduce_scatter_tensor(mine, all).wait();
      EXPECT_EQ(mine.to_vector<float>()[0], static_cast<float>(4 * (group.rank() + 1)));
    }
  });
}

TEST(ProcessGroup, MinimumAndMaximumOfNaNAreNaN) {
  dist::run(first_devices(3), [](const dist::ProcessGroup& group) {
    for (int with_nan = 0; with_nan < 3; ++with_nan) {
      for (const auto op : {dist::ReduceOp::min, dist::ReduceOp::max}) {
        const ls::Tensor value = ones(group, {1});
        if (group.rank() == with_nan) value.fill_(std::numeric_limits<double>::quiet_NaN());
        group.all_reduce(value, op).wait();
        EXPECT_TRUE(std::isnan(value.item())) << with_nan << ' ' << op;
      }
    }
  });
}

TEST(ProcessGroup, IntegersWrapAround) {
  dist::run(first_devices(2), [](const dist::ProcessGroup& group) {
    const ls::Tensor bytes = ls::full({3}, 200, {.dtype = ls::Dtype::u8, .device = group.device()});
    group.all_reduce(bytes).wait();
    EXPECT_EQ(bytes.to_vector<std::uint8_t>(), std::vector<std::uint8_t>(3, 144));
    const ls::Tensor words =
        ls::full({1}, 2147483647, {.dtype = ls::Dtype::i32, .device = group.device()});
    group.all_reduce(words).wait();
    EXPECT_EQ(words.to_vector<std::int32_t>()[0], -2);
  });
}

TEST(ProcessGroup, WorkIsCompleteOnlyWhenAllRanksHaveCome) {
  Flag looked;
  dist::run(first_devices(3), [&](const dist::ProcessGroup& group) {
    const ls::Tensor one = ones(group, {100});
    if (group.rank() == 2) looked.wait();
    const dist::Work work = group.all_reduce(one);
    if (group.rank() == 0) {
      EXPECT_FALSE(work.is_completed());
      EXPECT_EQ(work.exception(), nullptr);
      looked.set();
    }
    work.wait();
    work.wait();
    EXPECT_TRUE(work.is_completed());
    EXPECT_EQ(one.to_vector<float>(), std::vector<float>(100, 3));
  });
}

TEST(ProcessGroup, ComesAfterWhatTheStreamHolds) {
  const ls::testing::QueuedCompute queued;
  ls::testing::Gate gate;
  Flag looked;
  dist::run(first_devices(2), [&](const dist::ProcessGroup& group) {
    const ls::Tensor value = ls::zeros({6}, {.device = group.device()});
    ls::current_stream(group.device()).synchronize();
    if (group.rank() == 1) gate.hold(ls::current_stream(group.device()));
    value.fill_(group.rank() + 1);
    const dist::Work work = group.all_reduce(value);
    if (group.rank() == 0) {
      EXPECT_FALSE(work.is_completed());
      looked.set();
    } else {
      looked.wait();
      gate.open();
    }
    work.wait();
    EXPECT_EQ(value.to_vector<float>(), std::vector<float>(6, 3));
  });
}

TEST(ProcessGroup, WritesAfterThoseWhoStillRead) {
  ls::testing::Gate gate;
  dist::run(first_devices(2), [&](const dist::ProcessGroup& group) {
    const ls::Tensor value = ones(group, {70000});
    const ls::Tensor seen = ls::zeros({70000}, {.device = group.device()});
    const ls::Stream copies = ls::copy_stream(group.device());
    copies.wait_stream(ls::current_stream(group.device()));
    if (group.rank() == 1) gate.hold(copies);
    ls::detail::copy_bytes(seen, value, copies);
    const dist::Work work = group.all_reduce(value);
    if (group.rank() == 1) {
      EXPECT_FALSE(work.is_completed());
      gate.open();
    }
    work.wait();
    copies.synchronize();
    EXPECT_EQ(seen.to_vector<float>(), std::vector<float>(70000, 1));
  });
}

// While it lives no background thread serves a stream, so that only who waits for one does: as many
// as may be awake are held by copies, in whose place no other thread is woken.
class NoBackgroundThreads {
 public:
  NoBackgroundThreads() {
    auto& threads = ls::detail::BackgroundThreads::instance();
    const std::size_t wanted = threads.stats().wanted;
    for (std::size_t i = 0; i < wanted; ++i) {
      streams_.push_back(&new_stream());
      held_.push_back(std::make_unique<Flag>());
      streams_.back()->submit(
          [this, held = held_.back().get()] {
            held->set();
            end_.wait();
          },
          false);
    }
    for (const auto& held : held_) held->wait();
    while (threads.stats().awake > wanted) std::this_thread::yield();
  }
  NoBackgroundThreads(const NoBackgroundThreads&) = delete;
  NoBackgroundThreads& operator=(const NoBackgroundThreads&) = delete;
  ~NoBackgroundThreads() {
    end_.set();
    for (HostStream* const stream : streams_) stream->synchronize();
  }

 private:
  using HostStream = ls::detail::HostStream;

  // For ever: a thread that has served it may still be about to leave it.
  static HostStream& new_stream() {
    static auto& streams = *new std::vector<std::unique_ptr<HostStream>>;
    return *streams.emplace_back(
        std::make_unique<HostStream>(ls::Device(), HostStream::Mode::queued));
  }

  std::vector<HostStream*> streams_;
  std::vector<std::unique_ptr<Flag>> held_;
  Flag end_;
};

// The streams of the pool take results to tensors with strides.
TEST(ProcessGroup, AResultIsThereWhenWaitReturns) {
  std::vector<ls::Stream> pool{ls::pool_stream("cpu:0")};
  while (true) {
    const ls::Stream next = ls::pool_stream("cpu:0");
    if (next == pool[0]) break;
    pool.push_back(next);
  }
  const ls::testing::Queued queued(pool);
  dist::run(first_devices(1), [&](const dist::ProcessGroup& group) {
    const ls::Tensor whole = ls::zeros({2, 2}, {.device = group.device()});
    const NoBackgroundThreads held;
    group.all_gather(std::vector<ls::Tensor>{whole.t()}, ones(group, {2, 2})).wait();
    EXPECT_EQ(whole.to_vector<float>(), std::vector<float>(4, 1));
  });
}

TEST(ProcessGroup, DroppedWorkTakesPlace) {
  dist::run(first_devices(4), [](const dist::ProcessGroup& group) {
    ls::Tensor kept = ones(group, {50});
    for (int i = 0; i < 20; ++i) {
      ls::Tensor dropped = ones(group, {3000});
      (void)group.all_reduce(dropped);
    }
    (void)group.all_reduce(kept);
    group.barrier().wait();
    EXPECT_EQ(kept.to_vector<float>(), std::vector<float>(50, 4));
  });
}

TEST(ProcessGroup, LetsGoOfTensorsBeforeWorkEnds) {
  dist::run(first_devices(2), [](const dist::ProcessGroup& group) {
    ls::Tensor value = ones(group, {10});
    const std::weak_ptr<ls::detail::TensorImpl> alive = value.impl();
    const dist::Work work = group.all_reduce(value);
    value = ls::Tensor();
    work.wait();
    EXPECT_TRUE(alive.expired());
  });
}

TEST(ProcessGroup, CallsThatDoNotMatchAreAnErrorOnAllRanks) {
  using Issue = dist::Work (*)(const dist::ProcessGroup&);
  const Issue usual = [](const dist::ProcessGroup& group) {
    return group.all_reduce(ones(group, {4}));
  };
  struct Case {
    Issue other;
    const char* text;
  };
  const Case cases[] = {
      {[](const dist::ProcessGroup& group) { return group.all_reduce(ones(group, {5000})); },
       "all_reduce(sum) of 5000 x f32"},
      {[](const dist::ProcessGroup& group) {
         return group.all_reduce(ones(group, {4}).to(ls::Dtype::f64));
       },
       "all_reduce(sum) of 4 x f64"},
      {[](const dist::ProcessGroup& group) {
         return group.all_reduce(ones(group, {4}), dist::ReduceOp::max);
       },
       "all_reduce(max) of 4 x f32"},
      {[](const dist::ProcessGroup& group) { return group.barrier(); }, "barrier"},
      {[](const dist::ProcessGroup& group) { return group.broadcast(ones(group, {4}), 2); },
       "broadcast of 4 x f32 with root 2"},
  };
  for (const Case& each : cases) {
    dist::run(first_devices(3), [&](const dist::ProcessGroup& group) {
      const dist::Work work = group.rank() == 1 ? each.other(group) : usual(group);
      EXPECT_TRUE(throws<ls::ValueError>([&] { work.wait(); },
                                         "rank 0 called all_reduce(sum) of 4 x f32",
                                         "rank 1 called", each.text));
      EXPECT_NE(work.exception(), nullptr);
      EXPECT_TRUE(work.is_completed());
      // They are still together.
      EXPECT_TRUE(throws<ls::ValueError>(
          [&] { (group.rank() == 1 ? each.other(group) : usual(group)).wait(); }, each.text));
      const ls::Tensor one = ones(group, {4});
      group.all_reduce(one).wait();
      EXPECT_EQ(one.to_vector<float>(), std::vector<float>(4, 3));
    });
  }
}

TEST(ProcessGroup, RootsThatDifferAreAnError) {
  dist::run(first_devices(2), [](const dist::ProcessGroup& group) {
    EXPECT_TRUE(
        throws<ls::ValueError>([&] { group.broadcast(ones(group, {4}), group.rank()).wait(); },
                               "with root 0", "with root 1"));
  });
}

TEST(ProcessGroup, ArgumentsThatAreWrongIssueNothing) {
  dist::run(first_devices(2), [](const dist::ProcessGroup& group) {
    const ls::Tensor one = ones(group, {2});
    const ls::Tensor wide = ones(group, {3});
    const ls::Tensor whole = one.to(ls::Dtype::i64);
    const auto fails = [&]<class E>(std::type_identity<E>, const auto& body, const auto&... parts) {
      EXPECT_TRUE((throws<E>(body, parts...)));
    };
    constexpr std::type_identity<ls::ValueError> kValue;
    constexpr std::type_identity<ls::ShapeError> kShape;
    constexpr std::type_identity<ls::DtypeError> kDtype;
    constexpr std::type_identity<ls::DeviceError> kDevice;
    fails(
        kValue, [&] { (void)group.all_reduce(ls::Tensor()); }, "undefined");
    fails(
        kDtype, [&] { (void)group.all_reduce(whole, dist::ReduceOp::avg); }, "all_reduce", "i64");
    fails(
        kValue, [&] { (void)group.broadcast(one, 2); }, "rank 2 is out of range", "2 ranks");
    fails(
        kValue, [&] { (void)group.reduce(one, -1); }, "rank -1 is out of range");
    fails(
        kValue, [&] { (void)group.all_gather({one}, one); }, "expected 2 tensors as outputs",
        "got 1");
    fails(
        kShape,
        [&] {
          (void)group.all_gather({one, wide}, one);
        },
        "outputs[1]", "[3]", "[2]");
    fails(
        kDtype,
        [&] {
          (void)group.all_gather({whole, one}, one);
        },
        "outputs[0]", "i64", "f32");
    fails(
        kDevice,
        [&] {
          (void)group.all_gather({one, ls::zeros({2})}, one);
        },
        "outputs[1]", "on cpu,");
    fails(
        kShape, [&] { (void)group.all_gather_into_tensor(wide, one); }, "3 elements", "make 4");
    fails(
        kShape, [&] { (void)group.reduce_scatter_tensor(one, wide); }, "3 elements", "make 4");
    fails(
        kValue, [&] { (void)group.reduce_scatter(one, {}); }, "expected 2 tensors as inputs");
    fails(
        kValue,
        [&] {
          (void)group.scatter(one, {one, one}, 1 - group.rank());
        },
        "is not the root");
    fails(
        kValue, [&] { (void)group.gather(one, {}, group.rank()); },
        "expected 2 tensors as outputs");
    fails(
        kValue,
        [&] {
          (void)group.all_reduce(ls::detail::make_view(one, {3, 2}, {0, 1}, 0));
        },
        "the same element in memory");
    fails(
        kValue, [&] { (void)group.send(one, 1 - group.rank(), -1); }, "tag");
    const ls::Tensor rows =
        ls::sparse_coo_tensor(ls::from_values<std::int64_t>({0}, {1, 1}), ls::ones({1, 2}), {2, 2});
    const ls::Tensor dense = ls::zeros({2, 2});
    fails(
        kValue,
        [&] {
          (void)group.all_gather({dense, dense}, rows);
        },
        "all_gather", "sparse");
    const ls::Tensor number =
        ls::sparse_coo_tensor(ls::from_values<std::int64_t>({0}, {1, 1}), ls::ones({1, 1}), {1, 1});
    for (const ls::Tensor& written : {rows, number}) {
      fails(
          kValue, [&] { (void)group.broadcast(written, 0); }, "broadcast", "sparse");
      fails(
          kValue, [&] { (void)group.recv(written, 1 - group.rank()); }, "recv", "sparse");
    }
    fails(
        kValue, [&] { (void)group.send(rows, 1 - group.rank()); }, "send", "sparse");
    fails(
        kValue, [&] { (void)group.new_group({}); }, "at least one");
    fails(
        kValue,
        [&] {
          (void)group.new_group({0, 0});
        },
        "more than once");
    fails(
        kValue,
        [&] {
          (void)group.new_group({0, 2});
        },
        "out of range");
    group.all_reduce(one).wait();
    EXPECT_EQ(one.to_vector<float>(), (std::vector<float>{2, 2}));
  });
}

// On all ranks, before anything is issued.
TEST(ProcessGroup, AnUndefinedTensorIsAnErrorThatNamesTheOperation) {
  dist::run(first_devices(2), [](const dist::ProcessGroup& group) {
    const ls::Tensor none;
    const ls::Tensor one = ones(group, {1});
    const std::vector<ls::Tensor> two{one, none};
    const std::vector<ls::Tensor> mine = group.rank() == 0 ? two : std::vector<ls::Tensor>();
    const auto names = [](const char* operation, const char* what, const auto& body) {
      EXPECT_TRUE(throws<ls::ValueError>(body, operation, what, "undefined"));
    };
    names("all_reduce", "the tensor", [&] { (void)group.all_reduce(none); });
    names("broadcast", "the tensor", [&] { (void)group.broadcast(none); });
    names("reduce", "the tensor", [&] { (void)group.reduce(none, 0, dist::ReduceOp::avg); });
    names("all_gather", "outputs[1]", [&] { (void)group.all_gather(two, one); });
    names("all_gather", "the tensor", [&] { (void)group.all_gather({one, one}, none); });
    names("all_gather_into_tensor", "output",
          [&] { (void)group.all_gather_into_tensor(none, one); });
    names("reduce_scatter", "inputs[1]", [&] { (void)group.reduce_scatter(one, two); });
    names("reduce_scatter_tensor", "output", [&] { (void)group.reduce_scatter_tensor(none, one); });
    names("scatter", "the tensor", [&] { (void)group.scatter(none, mine); });
    names("gather", "the tensor", [&] { (void)group.gather(none, mine); });
    names("send", "the tensor", [&] { (void)group.send(none, 0); });
    names("recv", "the tensor", [&] { (void)group.recv(none, 0); });
    group.barrier().wait();
  });
}

TEST(ProcessGroup, WhatIsWrittenHasMemoryForEachOfItsElements) {
  dist::run(first_devices(2), [](const dist::ProcessGroup& group) {
    const int root = group.rank();
    const ls::Tensor one = ones(group, {2});
    const ls::Tensor same = ls::detail::make_view(one, {2}, {0}, 0);
    const ls::Tensor whole = ls::detail::make_view(one, {2, 2}, {0, 1}, 0);
    const std::vector<ls::Tensor> list = {one, same};
    const std::vector<std::function<void()>> calls = {
        [&] { (void)group.all_reduce(same); },
        [&] { (void)group.broadcast(same, root); },
        [&] { (void)group.reduce(same, root); },
        [&] { (void)group.all_gather(list, one); },
        [&] { (void)group.all_gather_into_tensor(whole, one); },
        [&] {
          (void)group.reduce_scatter(same, {one, one});
        },
        [&] { (void)group.reduce_scatter_tensor(same, whole); },
        [&] {
          (void)group.scatter(same, {one, one}, root);
        },
        [&] { (void)group.gather(one, list, root); },
        [&] { (void)group.recv(same, 1 - root); },
    };
    for (std::size_t i = 0; i < calls.size(); ++i) {
      EXPECT_TRUE(throws<ls::ValueError>(calls[i], "the same element in memory")) << i;
    }
    group.all_reduce(ls::detail::make_view(one, {2, 0}, {0, 1}, 0)).wait();  // which has none
    group.all_reduce(one).wait();
    EXPECT_EQ(one.to_vector<float>(), (std::vector<float>{2, 2}));
  });
}

TEST(ProcessGroup, OutputsThatShareMemoryAreRefused) {
  dist::run(first_devices(3), [](const dist::ProcessGroup& group) {
    const ls::TensorOptions here{.device = group.device()};
    const int root = group.rank();
    const ls::Tensor whole = ls::zeros({7}, here);
    const ls::Tensor input = ones(group, {2});
    const auto part = [&](std::int64_t start) { return whole.narrow(0, start, 2); };
    const auto fails = [&](const std::vector<ls::Tensor>& outputs, const char* names) {
      EXPECT_TRUE(throws<ls::ValueError>([&] { (void)group.all_gather(outputs, input); },
                                         "all_gather: ", names, " share memory"));
      EXPECT_TRUE(throws<ls::ValueError>([&] { (void)group.gather(input, outputs, root); },
                                         "gather: ", names, " share memory"));
    };
    fails({part(0), part(2), part(3)}, "outputs[1] and outputs[2]");
    fails({part(3), part(0), part(4)}, "outputs[0] and outputs[2]");
    fails({part(0), part(5), part(0)}, "outputs[0] and outputs[2]");
    // Of strided ones it is known that the first elements are the same.
    const ls::Tensor columns = ls::zeros({2, 3}, here);
    const auto column = [&](std::int64_t i) { return columns.select(1, i); };
    fails({column(0), column(2), column(0)}, "outputs[0] and outputs[2]");
    // Memory that was lent twice.
    std::vector<float> lent(4);
    const auto from = [&](std::int64_t at) { return ls::from_blob(lent.data() + at, {2}); };
    const ls::Tensor value = ls::ones({2});
    EXPECT_TRUE(throws<ls::ValueError>(
        [&] {
          (void)group.all_gather({from(0), ls::zeros({2}), from(1)}, value);
        },
        "outputs[0] and outputs[2]"));

    // In any order, side by side or with gaps; and empty ones.
    group.all_gather({part(5), part(0), part(2)}, input).wait();
    EXPECT_EQ(whole.to_vector<float>(), (std::vector<float>{1, 1, 1, 1, 0, 1, 1}));
    group.all_gather({column(2), column(0), column(1)}, input).wait();
    EXPECT_EQ(columns.to_vector<float>(), std::vector<float>(6, 1));
    const ls::Tensor none = whole.narrow(0, 1, 0);
    group.all_gather({none, none, none}, none).wait();
  });
}

TEST(ProcessGroup, AnInputSharesMemoryWithTheOutputExactlyInPlaceOnly) {
  dist::run(first_devices(3), [](const dist::ProcessGroup& group) {
    const int own = group.rank();
    const int other = (own + 1) % 3;
    const ls::Tensor whole = ls::zeros({8}, {.device = group.device()});
    const auto part = [&](std::int64_t start) { return whole.narrow(0, start, 2); };
    const ls::Tensor all = whole.narrow(0, 0, 6);
    const std::vector<ls::Tensor> list = {part(0), part(2), part(4)};
    const ls::Tensor mine = list[static_cast<std::size_t>(own)];
    const ls::Tensor others = list[static_cast<std::size_t>(other)];
    const ls::Tensor shifted = part(2 * own + 1);
    const auto fails = [](const auto& call, const auto&... parts) {
      EXPECT_TRUE(throws<ls::ValueError>(call, parts...));
    };
    const std::string the_others = ls::detail::str("puts[", other, "]");
    const std::string may_be = ls::detail::str("puts[", own, "], this rank's, exactly");
    const std::string may_be_part = ls::detail::str("it may be part ", own, " of the ");
    for (const ls::Tensor& wrong : {others, shifted}) {
      const std::string with = wrong.is_same(others) ? the_others : "puts[";
      fails([&] { (void)group.all_gather(list, wrong); },
            "all_gather: the input shares memory with out", with, may_be);
      fails([&] { (void)group.gather(wrong, list, own); },
            "gather: the input shares memory with out", with, may_be);
      fails([&] { (void)group.reduce_scatter(wrong, list); },
            "reduce_scatter: the output shares memory with in", with, may_be);
      fails([&] { (void)group.scatter(wrong, list, own); },
            "scatter: the output shares memory with in", with, may_be);
      fails([&] { (void)group.all_gather_into_tensor(all, wrong); },
            "all_gather_into_tensor: the input shares memory with the output", may_be_part);
      fails([&] { (void)group.reduce_scatter_tensor(wrong, all); },
            "reduce_scatter_tensor: the output shares memory with the input", may_be_part);
    }
    // In place, but another part is the same memory.
    fails(
        [&] {
          (void)group.reduce_scatter(mine, {mine, mine, mine});
        },
        ls::detail::str("inputs[", own == 0 ? 1 : 0, "]"));

    const auto bring = [&] { mine.fill_(own + 1); };
    const std::vector<float> gathered{1, 1, 2, 2, 3, 3};
    bring();
    group.all_gather(list, mine).wait();
    EXPECT_EQ(all.to_vector<float>(), gathered);
    group.reduce_scatter(mine, list).wait();
    EXPECT_EQ(mine.to_vector<float>(), std::vector<float>(2, static_cast<float>(3 * (own + 1))));
    bring();
    group.gather(mine, own == 1 ? list : std::vector<ls::Tensor>(), 1).wait();
    if (own == 1) {
      EXPECT_EQ(all.to_vector<float>(), gathered);
    }
    group.scatter(mine, own == 1 ? list : std::vector<ls::Tensor>(), 1).wait();
    EXPECT_EQ(mine.to_vector<float>(), std::vector<float>(2, static_cast<float>(own + 1)));
    // What is strided goes through memory of its own.
    const ls::Tensor square = ls::full({3, 3}, own, {.device = group.device()});
    group.all_gather_into_tensor(square, square.narrow(1, 1, 1)).wait();
    EXPECT_EQ(square.to_vector<float>(), (std::vector<float>{0, 0, 0, 1, 1, 1, 2, 2, 2}));
  });
}

TEST(ProcessGroup, IntegersHaveNoAverage) {
  dist::run(first_devices(2), [](const dist::ProcessGroup& group) {
    const ls::Tensor one = ones(group, {2}).to(ls::Dtype::i64);
    const ls::Tensor two = ones(group, {4}).to(ls::Dtype::i64);
    const auto avg = dist::ReduceOp::avg;
    const std::vector<std::function<void()>> calls = {
        [&] { (void)group.all_reduce(one, avg); },
        [&] { (void)group.reduce(one, 0, avg); },
        [&] {
          (void)group.reduce_scatter(one, {one, one}, avg);
        },
        [&] { (void)group.reduce_scatter_tensor(one, two, avg); },
    };
    for (std::size_t i = 0; i < calls.size(); ++i) {
      EXPECT_TRUE(throws<ls::DtypeError>(calls[i], "the average of a tensor of i64")) << i;
    }
  });
}

TEST(ProcessGroup, MessagesKeepTheirTagsAndTheirOrder) {
  dist::run(first_devices(2), [](const dist::ProcessGroup& group) {
    const auto number = [&](double value) {
      return ls::full({1}, value, {.device = group.device()});
    };
    if (group.rank() == 0) {
      for (const double value : {1., 2., 3.})
        (void)group.send(number(value), 1, value == 2 ? 7 : 0);
      (void)group.blocking().barrier();  // does not wait for them to be taken
    } else {
      (void)group.blocking().barrier();
      const ls::Tensor got = number(0);
      group.recv(got, 0, 7).wait();
      EXPECT_EQ(got.item(), 2);
      (void)group.blocking().recv(got, 0);
      EXPECT_EQ(got.item(), 1);
      dist::recv(got, 0);
      EXPECT_EQ(got.item(), 3);
    }
  });
}

TEST_P(Worlds, SendAroundARing) {
  dist::run(first_devices(GetParam()),
            [](const dist::ProcessGroup& group) { ls::testing::expect_ring(group); });
}

TEST(ProcessGroup, ARankThatReceivesFromItselfInVainIsReleasedAtItsEnd) {
  dist::Work work;
  dist::run(first_devices(1), [&](const dist::ProcessGroup& group) {
    (void)group.send(ones(group, {2}), 0, 1);  // never taken
    work = group.recv(ones(group, {2}), 0);
  });
  EXPECT_TRUE(throws<dist::RankGone>(
      [&] { work.wait(); },
      "recv of 2 x f32 from rank 0 with tag 0: rank 0 on device cpu:0 has returned"));
}

TEST(ProcessGroup, MessagesThatDoNotMatchAreAnErrorOnBothSides) {
  dist::run(first_devices(3), [](const dist::ProcessGroup& group) {
    if (group.rank() == 2) return;
    const ls::Tensor value = ones(group, {4 + group.rank()});
    const dist::Work work = group.rank() == 0 ? group.send(value, 1) : group.recv(value, 0);
    EXPECT_TRUE(throws<ls::ValueError>([&] { work.wait(); }, "rank 0 sent 4 x f32",
                                       "rank 1 receives 5 x f32"));
  });
}

TEST(ProcessGroup, ReceivesIntoTensorsOfAnyStrides) {
  dist::run(first_devices(2), [](const dist::ProcessGroup& group) {
    const ls::Tensor whole = ls::zeros({3, 2}, {.device = group.device()});
    if (group.rank() == 0) {
      group.send(ones(group, {3, 1}), 1).wait();
    } else {
      group.recv(whole.narrow(1, 1, 1), 0).wait();
      EXPECT_EQ(whole.to_vector<float>(), (std::vector<float>{0, 1, 0, 1, 0, 1}));
    }
  });
}

TEST(ProcessGroup, SeveralThreadsOfARankMayIssue) {
  dist::run(first_devices(2), [](const dist::ProcessGroup& group) {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&group] {
        for (int i = 0; i < 25; ++i) {
          const ls::Tensor one = ones(group, {33});
          group.all_reduce(one).wait();
          EXPECT_EQ(one.to_vector<float>()[32], 2);
          const ls::Tensor two = ones(group, {33});
          (void)group.blocking().all_reduce(two);
          EXPECT_EQ(two.to_vector<float>()[0], 2);
        }
      });
    }
  });
}

TEST(ProcessGroup, HandlesOutliveRun) {
  dist::ProcessGroup escaped;
  dist::run(first_devices(2), [&](const dist::ProcessGroup& group) {
    if (group.rank() == 1) escaped = group;
  });
  EXPECT_EQ(escaped.rank(), 1);
  EXPECT_TRUE(
      throws<dist::RankGone>([&] { escaped.all_reduce(ls::zeros({1})).wait(); }, "has returned"));
}

TEST(ProcessGroup, AMessageThatNobodyTakesEndsWithItsGroup) {
  dist::run(first_devices(2), [](const dist::ProcessGroup& group) {
    dist::ProcessGroup part = group.new_group({0, 1});
    const ls::Tensor value = ls::zeros({1});
    const dist::Work work = group.rank() == 0 ? part.recv(value, 1) : part.recv(value, 0);
    part = {};
    EXPECT_TRUE(throws<ls::Error>([&] { work.wait(); }, "recv", "group was destroyed"));
  });
}

TEST(ProcessGroup, GroupsWithinLoseTheirRanksToo) {
  dist::run(first_devices(4), [](const dist::ProcessGroup& group) {
    const dist::ProcessGroup pair = group.new_group({1, 3});
    const dist::ProcessGroup other = group.new_group({0, 2});
    if (group.rank() == 3) return;
    if (group.rank() == 1) {
      EXPECT_TRUE(throws<dist::RankGone>([&] { pair.barrier().wait(); }, "rank 3 on device cpu:3"));
    } else {
      other.barrier().wait();
    }
  });
}

TEST(ProcessGroup, NewGroupOfDifferentRanksIsAnError) {
  dist::run(first_devices(3), [](const dist::ProcessGroup& group) {
    EXPECT_TRUE(throws<ls::ValueError>(
        [&] {
          (void)group.new_group(group.rank() == 2 ? std::vector<int>{0, 2}
                                                  : std::vector<int>{0, 1});
        },
        "new_group: rank 2 lists other ranks than rank 0"));
    group.barrier().wait();
  });
}

}  // namespace process_group_test
