// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/data/loading/batch_workers.hpp>
#include <lockstep/device/cores.hpp>
#include <lockstep/distributed/group/group_state.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/run.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/random.hpp>

#include "support/devices.hpp"
#include "support/expect_error.hpp"
#include "support/forked.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <future>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace ls = lockstep;
namespace dist = lockstep::distributed;
using ls::testing::first_devices;
using ls::testing::throws;

namespace run_test {

ls::Tensor ones(const dist::ProcessGroup& group) {
  return ls::full({4}, 1, {.device = group.device()});
}

TEST(Run, CallsOneThreadForEachDevice) {
  std::vector<std::thread::id> threads(4);
  dist::run(first_devices(4), [&](const dist::ProcessGroup& group) {
    threads[static_cast<std::size_t>(group.rank())] = std::this_thread::get_id();
    group.barrier().wait();
  });
  EXPECT_EQ(threads[0], std::this_thread::get_id());
  for (std::size_t i = 0; i < 4; ++i) {
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(threads[i], threads[j]);
  }
}

TEST(Run, TakesADeviceMoreThanOnceAndPlainCpu) {
  dist::run({ls::Device("cpu:1"), ls::Device("cpu:1"), ls::Device()},
            [](const dist::ProcessGroup& group) {
              const ls::Tensor one = ones(group);
              group.all_reduce(one).wait();
              EXPECT_EQ(one.to_vector<float>(), std::vector<float>(4, 3));
            });
}

TEST(Run, HasMoreRanksThanCores) {
  const std::vector<ls::Device> devices(40, ls::Device("cpu:0"));
  dist::run(devices, [](const dist::ProcessGroup& group) {
    for (int i = 0; i < 5; ++i) {
      const ls::Tensor one = ones(group);
      group.all_reduce(one).wait();
      EXPECT_EQ(one.to_vector<float>()[3], 40);
    }
  });
}

bool equal(const ls::detail::CoreSet& a, const ls::detail::CoreSet& b) {
  return CPU_EQUAL(&a, &b) != 0;
}

int common_cores(const ls::detail::CoreSet& a, const ls::detail::CoreSet& b) {
  ls::detail::CoreSet both;
  CPU_AND(&both, &a, &b);
  return CPU_COUNT(&both);
}

TEST(Run, BindsRanksToCoresOfTheirOwnForAsLongAsTheyRun) {
  const ls::detail::CoreSet all = *ls::detail::affinity();
  const auto cores_of_ranks = [](dist::BindTo bind_to) {
    std::vector<ls::detail::CoreSet> cores(2);
    dist::run(first_devices(2),
              [&](const dist::ProcessGroup& group) {
                const ls::Tensor one = ones(group);
                group.all_reduce(one).wait();
                EXPECT_EQ(one.to_vector<float>(), std::vector<float>(4, 2));
                cores[static_cast<std::size_t>(group.rank())] = *ls::detail::affinity();
              },
              {.bind_to = bind_to});
    return cores;
  };
  const std::vector<ls::detail::CoreSet> bound = cores_of_ranks(dist::BindTo::core);
  const bool enough = CPU_COUNT(&all) >= 2;
  EXPECT_EQ(common_cores(bound[0], bound[1]), enough ? 0 : 1);
  for (const auto& cores : bound) EXPECT_GE(common_cores(cores, all), 1);
  EXPECT_TRUE(equal(*ls::detail::affinity(), all));
  for (const auto& cores : cores_of_ranks(dist::BindTo::none)) {
    EXPECT_TRUE(equal(cores, all));
  }
}

// What they start is for the whole process, and stays when the ranks have ended.
TEST(Run, WhatTheThreadsOfABoundRankStartIsNotBound) {
  const ls::detail::CoreSet all = *ls::detail::affinity();
  const auto start_one = [&] {
    std::promise<ls::detail::CoreSet> started;
    ls::detail::start_detached("none", [&] { started.set_value(*ls::detail::affinity()); });
    const ls::detail::CoreSet cores = started.get_future().get();
    EXPECT_TRUE(equal(cores, all));
  };
  dist::run(first_devices(2),
            [&](const dist::ProcessGroup& group) {
              group.impl()->thread()->issue(ls::detail::Task(start_one));
              group.impl()->thread()->drain();
              const auto load = [&](std::size_t) {
                start_one();
                return 1;
              };
              ls::data::detail::BatchWorkers<int> workers(load, 1, 1, 1);
              EXPECT_EQ(workers.take(), 1);
            },
            {.bind_to = dist::BindTo::core});
}

TEST(Run, ARankThatThrowsIsNoLongerBound) {
  const ls::detail::CoreSet all = *ls::detail::affinity();
  const auto train = [](const dist::ProcessGroup&) { throw std::runtime_error("enough"); };
  EXPECT_ANY_THROW(dist::run(first_devices(2), train, {.bind_to = dist::BindTo::core}));
  dist::run(first_devices(2), [&](const dist::ProcessGroup&) {  // on the same threads
    EXPECT_TRUE(equal(*ls::detail::affinity(), all));
  });
}

TEST(Run, CarriesTheCallersState) {
  const ls::NoGradGuard guard;
  const ls::Stream stream = ls::pool_stream(ls::Device("cpu:1"));
  const ls::StreamGuard current(stream);
  dist::run(first_devices(2), [&](const dist::ProcessGroup&) {
    EXPECT_FALSE(ls::is_grad_enabled());
    EXPECT_EQ(ls::current_stream(ls::Device("cpu:1")), stream);
  });
  EXPECT_EQ(ls::current_stream(ls::Device("cpu:1")), stream);
}

TEST(Run, GivesEachThreadItsDefaultGroup) {
  EXPECT_FALSE(dist::is_initialized());
  dist::run(first_devices(2), [](const dist::ProcessGroup& group) {
    EXPECT_EQ(dist::default_group().rank(), group.rank());
    // Another world within.
    dist::run(first_devices(3), [](const dist::ProcessGroup& inner) {
      EXPECT_EQ(dist::get_world_size(), 3);
      inner.barrier().wait();
    });
    EXPECT_EQ(dist::default_group().impl(), group.impl());
  });
  EXPECT_FALSE(dist::is_initialized());
}

TEST(Run, ARankThatThrowsReleasesTheOthers) {
  std::atomic<int> released{0};
  const auto body = [&](const dist::ProcessGroup& group) {
    group.barrier().wait();
    if (group.rank() == 2) throw ls::ShapeError("not this shape");
    try {
      group.all_reduce(ones(group)).wait();
    } catch (const dist::RankGone& gone) {
      const std::string text = gone.what();
      if (text.find("rank 2 on device cpu:2 has thrown lockstep::ShapeError: not this shape") !=
              std::string::npos &&
          text.find("all_reduce(sum) of 4 x f32 on rank") != std::string::npos) {
        ++released;
      }
      throw;
    }
  };
  try {
    dist::run(first_devices(4), body);
    FAIL() << "no error";
  } catch (const ls::ShapeError& error) {
    EXPECT_EQ(std::string(error.what()),
              "rank 2 on device cpu:2 threw lockstep::ShapeError: not this shape");
    const auto& failure = dynamic_cast<const dist::RankFailure&>(error);
    EXPECT_EQ(failure.rank(), 2);
    EXPECT_EQ(failure.device(), ls::Device("cpu:2"));
    EXPECT_THROW(std::rethrow_if_nested(error), ls::ShapeError);
  }
  EXPECT_EQ(released.load(), 3);
}

TEST(Run, TheLowestRanksErrorComesFirst) {
  const auto body = [](const dist::ProcessGroup& group) {
    if (group.rank() == 1) throw std::out_of_range("one");
    if (group.rank() == 3) throw ls::ValueError("three");
    group.barrier().wait();
  };
  EXPECT_TRUE(
      throws<std::out_of_range>([&] { dist::run(first_devices(4), body); },
                                "rank 1 on device cpu:1 threw std::out_of_range: one",
                                "Also: rank 3 on device cpu:3 threw lockstep::ValueError: three"));
}

TEST(Run, WhatIsNoLockstepErrorKeepsItsTypeAsFarAsItCan) {
  const auto out_of_memory = [] {
    dist::run(first_devices(2), [](const dist::ProcessGroup&) { throw std::bad_alloc(); });
  };
  EXPECT_TRUE(throws<std::bad_alloc>(out_of_memory, "rank 0 on device cpu:0", "std::bad_alloc"));
  EXPECT_THROW(out_of_memory(), dist::RankFailure);
  EXPECT_TRUE(throws<ls::Error>(
      [] { dist::run(first_devices(1), [](const dist::ProcessGroup&) { throw 3; }); },
      "rank 0 on device cpu:0 threw int"));
}

// The names in the text are those of what users catch.
TEST(Run, AFailureWithinARankOfARankKeepsItsTypeAndItsName) {
  const auto within = [](const dist::ProcessGroup&) {
    dist::run(first_devices(1), [](const dist::ProcessGroup&) { throw ls::ShapeError("seven"); });
  };
  EXPECT_TRUE(throws<ls::ShapeError>([&] { dist::run(first_devices(1), within); },
                                     "rank 0 on device cpu:0 threw lockstep::ShapeError: rank 0 on "
                                     "device cpu:0 threw lockstep::ShapeError: seven"));
}

TEST(Run, WhoWasReleasedIsNotToBlameWhateverItMadeOfThat) {
  const auto body = [](const dist::ProcessGroup& group) {
    if (group.rank() == 1) throw ls::ShapeError("the cause");
    try {
      group.barrier().wait();
    } catch (...) {
      std::throw_with_nested(std::runtime_error("what rank 0 makes of it"));
    }
  };
  EXPECT_TRUE(throws<ls::ShapeError>([&] { dist::run(first_devices(2), body); }, "rank 1"));
}

TEST(Run, ARankThatReturnsReleasesTheOthers) {
  const auto body = [](const dist::ProcessGroup& group) {
    if (group.rank() == 1) return;
    group.barrier().wait();
  };
  EXPECT_TRUE(throws<dist::RankGone>([&] { dist::run(first_devices(3), body); },
                                     "rank 1 on device cpu:1 has returned and takes part no more "
                                     "(for uneven inputs there is join)"));
}

TEST(Run, ARankThatWaitsForAMessageIsReleased) {
  const auto body = [](const dist::ProcessGroup& group) {
    if (group.rank() == 1) throw ls::ValueError("gone");
    const ls::Tensor value = ones(group);
    if (group.rank() == 0) group.recv(value, 1).wait();
    if (group.rank() == 2) group.send(value, 1).wait();
  };
  EXPECT_TRUE(throws<ls::ValueError>([&] { dist::run(first_devices(3), body); }, "rank 1", "gone"));
}

TEST(Run, WhatWasSentIsTakenAfterTheSendersEnd) {
  std::atomic<bool> sent{false};
  dist::run(first_devices(2), [&](const dist::ProcessGroup& group) {
    const ls::Tensor value = ones(group);
    if (group.rank() == 0) {
      (void)group.send(value, 1);
      sent.store(true);
      sent.notify_all();
    } else {
      sent.wait(false);
      const ls::Tensor got = ls::zeros({4}, {.device = group.device()});
      group.recv(got, 0).wait();
      EXPECT_EQ(got.to_vector<float>(), std::vector<float>(4, 1));
    }
  });
}

TEST(Run, WhatARankHasIssuedTakesPlaceWhenItHasReturned) {
  for (int round = 0; round < 20; ++round) {
    std::atomic<bool> issued{false};
    dist::run(first_devices(2), [&](const dist::ProcessGroup& group) {
      const ls::Tensor one = ones(group);
      if (group.rank() == 0) {
        (void)group.all_reduce(one);
        issued.store(true);
        issued.notify_all();
      } else {
        issued.wait(false);
        group.all_reduce(one).wait();
        EXPECT_EQ(one.to_vector<float>(), std::vector<float>(4, 2));
      }
    });
  }
}

// What is in flight when a rank throws neither hangs nor reads memory that is gone.
TEST(Run, OperationsInFlightEndWithTheirRank) {
  for (int round = 0; round < 50; ++round) {
    const auto body = [&](const dist::ProcessGroup& group) {
      std::vector<ls::Tensor> tensors;
      for (int i = 0; i < 10; ++i) {
        tensors.push_back(ls::full({3000}, 1, {.device = group.device()}));
        (void)group.all_reduce(tensors.back());
        if (group.rank() == round % 3 && i == round % 10) throw ls::ValueError("stop");
      }
      group.barrier().wait();
    };
    EXPECT_TRUE(throws<ls::ValueError>([&] { dist::run(first_devices(3), body); }, "stop"));
  }
}

// The end of the last handle on a group waits for nothing, so the exception gets out.
TEST(Run, ARankThatThrowsWithOperationsInFlightInAGroupOfItsOwnReleasesTheOthers) {
  const auto body = [](const dist::ProcessGroup& group) {
    const dist::ProcessGroup both = group.new_group({1, 0});
    if (group.rank() == 0) {
      (void)both.all_reduce(ones(group));
      (void)both.recv(ones(group), 0);
      throw ls::ValueError("stop");
    }
    group.barrier().wait();
  };
  EXPECT_TRUE(throws<ls::ValueError>([&] { dist::run(first_devices(2), body); }, "stop"));
}

// And what was issued on it takes place.
TEST(Run, OperationsOutliveTheHandlesOnTheirGroup) {
  dist::run(first_devices(2), [](const dist::ProcessGroup& group) {
    for (int round = 0; round < 50; ++round) {
      std::vector<dist::Work> works;
      std::vector<ls::Tensor> sums;
      for (int i = 0; i < 3; ++i) {
        const dist::ProcessGroup both = group.new_group({1, 0});
        for (int j = 0; j < 3; ++j) {
          sums.push_back(ones(group));
          works.push_back(both.all_reduce(sums.back()));
        }
      }
      for (const dist::Work& work : works) work.wait();
      for (const ls::Tensor& sum : sums) {
        ASSERT_EQ(sum.to_vector<float>(), std::vector<float>(4, 2));
      }
    }
  });
}

// The ranks' threads run at once, but none takes another's numbers, nor the caller's.
TEST(Run, EachRankDrawsRandomNumbersOfItsOwn) {
  ls::manual_seed(5);
  const auto expected = ls::rand({100}).to_vector<float>();
  ls::manual_seed(5);
  std::vector<std::vector<float>> first(3);
  std::vector<std::vector<float>> seeded(3);
  dist::run(first_devices(3), [&](const dist::ProcessGroup& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    for (int i = 0; i < 100; ++i) {
      first[rank].push_back(ls::rand({1}).to_vector<float>()[0]);
    }
    ls::manual_seed(rank);
    seeded[rank] = ls::rand({4}).to_vector<float>();
  });
  for (std::size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(first[rank], expected) << rank;
    ls::manual_seed(rank);
    EXPECT_EQ(seeded[rank], ls::rand({4}).to_vector<float>()) << rank;
  }
  ls::manual_seed(5);
  dist::run(first_devices(2), [](const dist::ProcessGroup&) { (void)ls::rand({7}); });
  EXPECT_EQ(ls::rand({100}).to_vector<float>(), expected);
}

// The communication thread exists in the parent only: an Error, not a wait for ever.
TEST(Run, AForkedChildCannotUseTheGroup) {
  dist::run(first_devices(1), [](const dist::ProcessGroup& group) {
    group.all_reduce(ones(group)).wait();  // has a communication thread from here on
    EXPECT_TRUE(ls::testing::refused_when_forked([&] { group.barrier().wait(); }));
  });
}

// Nor for what the parent had under way.
TEST(Run, AForkedChildDoesNotWaitForTheParentsWork) {
  dist::run(first_devices(2), [](const dist::ProcessGroup& group) {
    const ls::Tensor value = ones(group);
    if (group.rank() == 0) {
      const dist::Work work = group.recv(value, 1);
      EXPECT_TRUE(ls::testing::refused_when_forked([&] { work.wait(); }));
      group.barrier().wait();
      work.wait();
    } else {
      group.barrier().wait();
      group.send(value, 0).wait();
    }
  });
}

TEST(Run, DevicesThatAreWrong) {
  const auto nothing = [](const dist::ProcessGroup&) {};
  EXPECT_TRUE(
      throws<ls::ValueError>([&] { dist::run({}, nothing); }, "expected 1 to 1024 devices, got 0"));
  EXPECT_TRUE(
      throws<ls::DeviceError>([&] { dist::run({ls::Device("cpu:99")}, nothing); }, "cpu:99"));
}

// While another rank waits for it, and with work in flight.
TEST(RunDeathTest, TheProgramMayEndInARank) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto end = [](int ending) {
    dist::run(first_devices(3), [ending](const dist::ProcessGroup& group) {
      ls::Tensor own = ones(group);
      group.all_reduce(own).wait();
      if (group.rank() == ending) std::exit(0);
      group.all_reduce(own).wait();
    });
  };
  EXPECT_EXIT(end(0), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(end(2), ::testing::ExitedWithCode(0), "");
}

}  // namespace run_test
