// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/grad_mode.hpp>
#include <lockstep/autograd/inference_mode.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/data/dataloader.hpp>
#include <lockstep/tensor/creation.hpp>

#include "data/files.hpp"
#include "support/expect_error.hpp"
#include "support/forked.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include <pthread.h>
namespace dataloader_workers_test {

using lockstep::Shape;
using lockstep::Tensor;
using lockstep::data::DataLoader;
using lockstep::data::DataLoaderOptions;
using lockstep::data::TensorDataset;
using lockstep::testing::throws;
using lockstep::testing::values_of;
using Indices = std::vector<std::int64_t>;

constexpr std::int64_t kWorkerCounts[] = {0, 1, 2, 4, 7};
constexpr std::int64_t kThreadCounts[] = {1, 2, 4, 7};

// Sample i is i, after `visit(i)`, which may throw or wait.
struct Numbers {
  std::int64_t count = 0;
  std::function<void(std::int64_t)> visit = [](std::int64_t) {};

  std::int64_t size() const { return count; }
  std::int64_t get(std::int64_t i) const {
    visit(i);
    return i;
  }
};

// Blocks until the number is at least `least`.
void wait_for(const std::atomic<std::int64_t>& number, std::int64_t least) {
  for (auto now = number.load(); now < least; now = number.load()) number.wait(now);
}
void add_one(std::atomic<std::int64_t>& number) {
  number.fetch_add(1);
  number.notify_all();
}

template <class Loader>
std::vector<Indices> pass(Loader& loader) {
  std::vector<Indices> batches;
  for (const Tensor& numbers : loader) batches.push_back(values_of<std::int64_t>(numbers));
  return batches;
}

using NumbersLoader = DataLoader<Numbers>;
static_assert(std::input_iterator<NumbersLoader::Iterator>);
static_assert(!std::copy_constructible<NumbersLoader::Iterator>);

TEST(DataLoaderWorkers, GiveTheSameBatchesWhateverTheirNumber) {
  for (const std::int64_t size : {0, 1, 2, 3, 10, 61}) {
    for (const bool drop_last : {false, true}) {
      std::optional<std::vector<std::vector<Indices>>> expected;
      for (const std::int64_t workers : kWorkerCounts) {
        DataLoader loader{Numbers{size},
                          {.batch_size = 3,
                           .shuffle = true,
                           .seed = 5,
                           .drop_last = drop_last,
                           .num_workers = workers}};
        const std::vector<std::vector<Indices>> epochs{pass(loader), pass(loader)};
        EXPECT_EQ(static_cast<std::int64_t>(epochs[0].size()), loader.size());
        if (!expected) expected = epochs;
        EXPECT_EQ(epochs, *expected) << size << " samples, " << workers << " workers";
      }
    }
  }
}

TEST(DataLoaderWorkers, LoadBatchesOfVaryingShape) {
  struct Triangle {
    std::int64_t size() const { return 23; }
    Tensor get_batch(std::span<const std::int64_t> indices) const {
      return lockstep::arange(indices[0] % 5 + 1);
    }
  };
  for (const std::int64_t workers : kWorkerCounts) {
    DataLoader loader{Triangle(), {.batch_size = 2, .num_workers = workers}};
    std::int64_t index = 0;
    for (const Tensor& batch : loader) {
      EXPECT_EQ(batch.sizes(), Shape{index % 5 + 1});
      index += 2;
    }
    EXPECT_EQ(index, 24);
  }
}

// Batch 0 is loaded only when the other worker has loaded all that it may.
TEST(DataLoaderWorkers, KeepTheOrderOfBatchesThatAreDoneEarly) {
  std::atomic<std::int64_t> done{0};
  const Numbers numbers{10, [&done](std::int64_t i) {
                          if (i == 0) wait_for(done, 3);
                          add_one(done);
                        }};
  DataLoader loader{numbers, {.num_workers = 2, .prefetch_factor = 2}};
  EXPECT_EQ(pass(loader), (std::vector<Indices>{{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}, {9}}));
}

// Nothing is taken from the loader before all that may be loaded has been begun, so whatever is
// begun beyond that shows.
TEST(DataLoaderWorkers, LoadAheadAsFarAsAskedForAndNoFurther) {
  constexpr std::int64_t kBatches = 30;
  for (const std::int64_t workers : kThreadCounts) {
    for (const std::int64_t factor : {1, 3}) {
      std::atomic<std::int64_t> begun{0};
      std::atomic<std::int64_t> allowed{0};
      std::atomic<bool> exceeded{false};
      const Numbers numbers{kBatches, [&](std::int64_t i) {
                              if (i >= allowed.load()) exceeded = true;
                              add_one(begun);
                            }};
      DataLoader loader{numbers, {.num_workers = workers, .prefetch_factor = factor}};
      allowed = workers * factor + 1;  // begin() takes a batch
      auto batch = loader.begin();
      for (std::int64_t taken = 1; batch != loader.end(); ++batch, ++taken) {
        wait_for(begun, std::min(taken + workers * factor, kBatches));
        allowed = taken + 1 + workers * factor;
      }
      EXPECT_EQ(begun.load(), kBatches);
      EXPECT_FALSE(exceeded.load()) << workers << " workers, factor " << factor;
    }
  }
}

TEST(DataLoaderWorkers, AreNoMoreThanThereAreBatches) {
  DataLoader loader{Numbers{4},
                    {.batch_size = 3, .num_workers = INT64_MAX, .prefetch_factor = INT64_MAX}};
  EXPECT_EQ(pass(loader), (std::vector<Indices>{{0, 1, 2}, {3}}));
}

// An exception of a type of one's own, which arrives as it was thrown.
struct Misfortune : std::exception {
  explicit Misfortune(std::int64_t i) : sample(i) {}
  std::int64_t sample;
};

TEST(DataLoaderWorkers, ExceptionsComeAtTheBatchTheyBelongTo) {
  for (const std::int64_t workers : kWorkerCounts) {
    for (const std::int64_t bad : {0, 1, 7, 19}) {
      const Numbers numbers{20, [bad](std::int64_t i) {
                              if (i == bad) throw Misfortune(i);
                            }};
      DataLoader loader{numbers, {.batch_size = 2, .num_workers = workers}};
      for (int epoch = 0; epoch < 2; ++epoch) {
        Indices seen;
        try {
          for (const Tensor& batch : loader) seen.push_back(values_of<std::int64_t>(batch)[0]);
          ADD_FAILURE() << "nothing was thrown";
        } catch (const Misfortune& misfortune) {
          EXPECT_EQ(misfortune.sample, bad);
        }
        EXPECT_EQ(static_cast<std::int64_t>(seen.size()), bad / 2);
      }
    }
  }
}

// Errors of types that are made from a text alone.
TEST(DataLoaderWorkers, AnErrorNamesTheSampleThatItComesFrom) {
  const auto expect_named = []<class E>(std::type_identity<E>) {
    for (const std::int64_t workers : kWorkerCounts) {
      const Numbers numbers{20, [](std::int64_t i) {
                              if (i == 11) throw E("no such picture");
                            }};
      DataLoader loader{numbers, {.batch_size = 4, .num_workers = workers}};
      try {
        pass(loader);
        ADD_FAILURE() << "nothing was thrown";
      } catch (const std::exception& error) {
        EXPECT_EQ(typeid(error), typeid(E));
        EXPECT_STREQ(error.what(), "no such picture; it comes from the dataset's sample 11");
      }
    }
  };
  expect_named(std::type_identity<lockstep::DataError>());
  expect_named(std::type_identity<lockstep::Error>());
  expect_named(std::type_identity<std::out_of_range>());
  expect_named(std::type_identity<std::runtime_error>());
}

TEST(DataLoaderWorkers, AnErrorOfAWholeBatchNamesItsSamples) {
  struct Batches {
    std::int64_t count = 4;
    std::int64_t size() const { return count; }
    Tensor get_batch(std::span<const std::int64_t>) const {
      throw lockstep::DataError("no such pictures");
    }
  };
  const auto collate = [](const auto& /*samples*/) -> Tensor {
    throw lockstep::DataError("no batch");
  };
  const Numbers numbers{4, [](std::int64_t) {}};
  for (const std::int64_t workers : kWorkerCounts) {
    DataLoader batches{Batches{}, {.batch_size = 2, .num_workers = workers}};
    EXPECT_EQ(lockstep::testing::message_of<lockstep::DataError>([&] { (void)batches.begin(); }),
              "no such pictures; the batch is of the dataset's samples 0 1");
    DataLoader collated{numbers, {.batch_size = 2, .num_workers = workers}, collate};
    EXPECT_EQ(lockstep::testing::message_of<lockstep::DataError>([&] { (void)collated.begin(); }),
              "no batch; the batch is of the dataset's samples 0 1");
  }
  const auto names_of = [](std::int64_t count) {
    DataLoader loader{Batches{count}, {.batch_size = count}};
    return lockstep::testing::message_of<lockstep::DataError>([&] { (void)loader.begin(); });
  };
  EXPECT_TRUE(names_of(20).ends_with(" 18 19"));
  EXPECT_TRUE(names_of(21).ends_with(" 18 19 ..."));
}

TEST(DataLoaderWorkers, APassIsOverAfterAnException) {
  for (const std::int64_t workers : kWorkerCounts) {
    const Numbers numbers{20, [](std::int64_t i) {
                            if (i == 4) throw 42;  // any type will do
                          }};
    DataLoader loader{numbers, {.batch_size = 2, .num_workers = workers}};
    auto batch = loader.begin();
    ++batch;
    EXPECT_THROW(++batch, int);
    EXPECT_TRUE(batch == loader.end());
    ++batch;
    EXPECT_TRUE(batch == loader.end());
  }
}

TEST(DataLoaderWorkers, BeginNoFurtherBatchAfterAnException) {
  std::atomic<std::int64_t> begun{0};
  const Numbers numbers{20, [&begun](std::int64_t i) {
                          begun.fetch_add(1);
                          if (i == 3) throw Misfortune(i);
                        }};
  DataLoader loader{numbers, {.num_workers = 1, .prefetch_factor = 20}};
  EXPECT_THROW(pass(loader), Misfortune);
  EXPECT_EQ(begun.load(), 4);
}

TEST(DataLoaderWorkers, TheExceptionsOfCollateComeToo) {
  struct Growing {
    std::int64_t size() const { return 9; }
    Tensor get(std::int64_t i) const { return lockstep::arange(i < 6 ? 2 : i); }
  };
  for (const std::int64_t workers : kWorkerCounts) {
    DataLoader loader{Growing(), {.batch_size = 3, .num_workers = workers}};
    std::int64_t batches = 0;
    EXPECT_TRUE(throws<lockstep::ShapeError>(
        [&] {
          for (const Tensor& batch : loader) batches += batch.size(0) / 3;
        },
        "sample 0 of the batch has shape [6], but sample 1 has [7]; the batch is of the dataset's "
        "samples 6 7 8"));
    EXPECT_EQ(batches, 2);
  }
}

// Counts the threads that have begun to load and those that have ended.
struct Census {
  std::atomic<int> begun{0};
  std::atomic<int> ended{0};
};
struct Presence {
  Census* census = nullptr;
  void count_in(Census& of) {
    if (census == &of) return;
    census = &of;
    of.begun.fetch_add(1);
  }
  ~Presence() {
    if (census != nullptr) census->ended.fetch_add(1);
  }
};

// A dataset in which threads leave their mark. The first batch ends when all workers are loading.
Numbers counting_threads(Census& census, std::int64_t workers) {
  return {100, [&census, workers](std::int64_t) {
            thread_local Presence presence;
            presence.count_in(census);
            census.begun.notify_all();
            for (int now = census.begun; now < workers; now = census.begun) census.begun.wait(now);
          }};
}

template <class Use>
void expect_threads_end(Use use) {
  for (const std::int64_t workers : kThreadCounts) {
    Census census;
    {
      DataLoader loader{counting_threads(census, workers), {.num_workers = workers}};
      use(loader);
      EXPECT_EQ(census.begun.load(), workers);
      EXPECT_EQ(census.ended.load(), workers);
    }
  }
}

TEST(DataLoaderWorkers, EndWithThePass) {
  expect_threads_end([](auto& loader) { EXPECT_EQ(pass(loader).size(), 100U); });
}

TEST(DataLoaderWorkers, EndWhenTheLoopIsBroken) {
  expect_threads_end([](auto& loader) {
    for (const Tensor& batch : loader) {
      if (values_of<std::int64_t>(batch)[0] == 5) break;
    }
  });
}

TEST(DataLoaderWorkers, EndWhenTheLoopThrows) {
  expect_threads_end([](auto& loader) {
    const auto loop = [&loader] {
      for (const Tensor& batch : loader) {
        if (values_of<std::int64_t>(batch)[0] == 5) throw Misfortune(5);
      }
    };
    EXPECT_THROW(loop(), Misfortune);
  });
}

TEST(DataLoaderWorkers, EndWithAnIteratorThatIsNotUsed) {
  expect_threads_end([](auto& loader) { loader.begin(); });
}

TEST(DataLoaderWorkers, EndWhenTheirIteratorGetsAnotherPass) {
  expect_threads_end([](auto& loader) {
    DataLoader other{Numbers{3}};
    auto batch = loader.begin();
    auto moved = std::move(batch);
    EXPECT_EQ(values_of<std::int64_t>(*moved), Indices{0});
    ++moved;
    EXPECT_EQ(values_of<std::int64_t>(*moved), Indices{1});
    moved = other.begin();
    EXPECT_EQ(values_of<std::int64_t>(*moved), Indices{0});
  });
}

TEST(DataLoaderWorkers, TwoPassesMayRunAtOnce) {
  for (const std::int64_t workers : kWorkerCounts) {
    DataLoader loader{Numbers{20}, {.batch_size = 2, .num_workers = workers}};
    auto a = loader.begin();
    auto b = loader.begin();
    for (std::int64_t i = 0; i < 20; i += 2, ++a, ++b) {
      EXPECT_EQ(values_of<std::int64_t>(*a), (Indices{i, i + 1}));
      EXPECT_EQ(values_of<std::int64_t>(*b), (Indices{i, i + 1}));
    }
    EXPECT_TRUE(a == loader.end() && b == loader.end());
  }
}

TEST(DataLoaderWorkers, HaveNames) {
  const Numbers numbers{40, [](std::int64_t) {
                          char name[16] = {};
                          ::pthread_getname_np(::pthread_self(), name, sizeof name);
                          const std::string text = name;
                          if (text != "ls-loader-0" && text != "ls-loader-1") {
                            throw std::runtime_error("a thread named " + text);
                          }
                        }};
  DataLoader loader{numbers, {.num_workers = 2}};
  EXPECT_EQ(pass(loader).size(), 40U);
}

TEST(DataLoaderWorkers, RecordNothingAndNeitherDoesTheCaller) {
  struct Squares {
    std::int64_t size() const { return 3; }
    Tensor get(std::int64_t) const {
      if (lockstep::is_grad_enabled()) throw std::runtime_error("recording is on");
      return lockstep::ones({2});
    }
  };
  for (const std::int64_t workers : {0, 2}) {
    DataLoader loader{Squares(), {.num_workers = workers}};
    const lockstep::InferenceModeGuard inference;
    for (const Tensor& batch : loader) {
      EXPECT_FALSE(batch.is_inference());
      EXPECT_TRUE(lockstep::is_inference_mode_enabled());
    }
  }
  EXPECT_TRUE(lockstep::is_grad_enabled());
}

TEST(DataLoaderWorkers, UseTheStreamsOfTheThreadThatBeginsThePass) {
  const lockstep::Stream stream = lockstep::copy_stream("cpu:1");
  const Numbers numbers{6, [stream](std::int64_t) {
                          if (!(lockstep::current_stream("cpu:1") == stream)) {
                            throw std::runtime_error("another stream");
                          }
                        }};
  DataLoader loader{numbers, {.num_workers = 2}};
  const lockstep::StreamGuard guard(stream);
  EXPECT_EQ(pass(loader).size(), 6U);
}

TEST(DataLoaderWorkers, PinMemoryWhenAskedTo) {
  for (const std::int64_t workers : {0, 2}) {
    for (const bool pin : {false, true}) {
      for (const bool by_caller : {false, true}) {
        const Numbers numbers{6, [wanted = pin || by_caller](std::int64_t) {
                                if (lockstep::detail::pin_memory_wanted() != wanted) {
                                  throw std::runtime_error("the wrong memory");
                                }
                              }};
        DataLoader loader{numbers, {.num_workers = workers, .pin_memory = pin}};
        const lockstep::PinMemoryGuard guard(by_caller);
        EXPECT_EQ(pass(loader).size(), 6U);
      }
    }
  }
}

TEST(DataLoaderWorkers, BatchesNeedOnlyBeMovable) {
  struct Owners {
    std::int64_t size() const { return 5; }
    std::unique_ptr<std::int64_t> get_batch(std::span<const std::int64_t> indices) const {
      return std::make_unique<std::int64_t>(indices[0]);
    }
  };
  DataLoader loader{Owners(), {.num_workers = 2}};
  std::int64_t expected = 0;
  for (const auto& batch : loader) EXPECT_EQ(*batch, expected++);
  EXPECT_EQ(expected, 5);
}

TEST(DataLoaderWorkers, OptionsOutsideTheirRangeAreErrors) {
  const auto make = [](const DataLoaderOptions& options) { DataLoader{Numbers{1}, options}; };
  EXPECT_TRUE(throws<lockstep::ValueError>([&] { make({.num_workers = -1}); },
                                           "num_workers option should be non-negative, got -1"));
  EXPECT_TRUE(throws<lockstep::ValueError>([&] { make({.prefetch_factor = 0}); },
                                           "prefetch_factor of at least 1, got 0"));
}

// In the child there are no workers, and nobody ever gives back what they hold.
TEST(DataLoaderWorkers, AChildThatIsForkedInTheLoopNeitherHangsNorLoads) {
  DataLoader loader{Numbers{100}, {.num_workers = 2}};
  auto batch = loader.begin();
  const int status = lockstep::testing::status_when_forked([&] {
    try {
      while (batch != loader.end()) ++batch;
    } catch (const lockstep::Error&) {
      return batch == loader.end() ? 0 : 2;
    }
    return 1;
  });
  EXPECT_EQ(status, 0);
  std::int64_t count = 0;
  for (; batch != loader.end(); ++batch) ++count;
  EXPECT_EQ(count, 100);
}

}  // namespace dataloader_workers_test
