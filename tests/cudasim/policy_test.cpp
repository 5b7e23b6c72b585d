// SPDX-License-Identifier: Apache-2.0
#include "cudasim/cudasim.hpp"
#include "cudasim/program.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace cudasim::test {
namespace policy_test {

Config with(Policy policy, int pick = -1, unsigned seed = 1) {
  Config config;
  config.policy = policy;
  config.pick = pick;
  config.seed = seed;
  config.fibers = false;  // these tests look at what runs when, without waiting for it
  return config;
}

// Three streams with two operations each, and what has run of them.
struct Three {
  std::vector<std::unique_ptr<Stream>> streams;
  std::string ran;

  Three() {
    for (int i = 0; i < 3; ++i) streams.push_back(std::make_unique<Stream>());
  }
  void issue() {
    for (int round = 0; round < 2; ++round) {
      for (int i = 0; i < 3; ++i) {
        const char name = static_cast<char>((round == 0 ? 'a' : 'A') + i);
        streams[static_cast<std::size_t>(i)]->run(std::string(1, name), {},
                                                  [this, name] { ran += name; });
      }
    }
  }
};

TEST(CudasimPolicy, EagerRunsEachAtOnce) {
  reset(with(Policy::eager));
  Three three;
  three.issue();
  EXPECT_EQ(three.ran, "abcABC");
  EXPECT_EQ(pending(), 0U);
}

TEST(CudasimPolicy, LazyRunsOnlyWhatAWaitForces) {
  reset(with(Policy::lazy));
  Three three;
  three.issue();
  EXPECT_EQ(three.ran, "");
  EXPECT_EQ(pending(), 6U);
  three.streams[1]->synchronize();
  EXPECT_EQ(three.ran, "bB");
  three.streams[2]->wait(*three.streams[0]);
  three.streams[2]->synchronize();
  EXPECT_EQ(three.ran, "bBcCaA");
}

TEST(CudasimPolicy, LazyStopsAtTheEventThatIsWaitedFor) {
  reset(with(Policy::lazy));
  std::string ran;
  const Stream one;
  const Stream two;
  one.run("a", {}, [&ran] { ran += 'a'; });
  two.wait(one);
  one.run("b", {}, [&ran] { ran += 'b'; });
  two.synchronize();
  EXPECT_EQ(ran, "a");
  drain();
  EXPECT_EQ(ran, "ab");
}

TEST(CudasimPolicy, StarveHoldsOneStreamBack) {
  reset(with(Policy::starve, 1));
  Three three;
  three.issue();
  EXPECT_EQ(three.ran, "acAC");
  three.streams[1]->synchronize();
  EXPECT_EQ(three.ran, "acACbB");
}

TEST(CudasimPolicy, StarveHoldsBackWhatWaitsForIt) {
  reset(with(Policy::starve, 0));
  Three three;
  three.issue();
  three.streams[1]->wait(*three.streams[0]);
  three.streams[1]->run("d", {}, [&three] { three.ran += 'd'; });
  EXPECT_EQ(three.ran, "bcBC");
  three.streams[1]->synchronize();
  EXPECT_EQ(three.ran, "bcBCaAd");
}

TEST(CudasimPolicy, FavourRunsOneStreamAtOnce) {
  reset(with(Policy::favour, 1));
  Three three;
  three.issue();
  EXPECT_EQ(three.ran, "bB");
}

TEST(CudasimPolicy, RandomDependsOnTheSeedAndOnNothingElse) {
  std::set<std::string> orders;
  for (unsigned seed = 1; seed <= 20; ++seed) {
    std::string first;
    for (int again = 0; again < 2; ++again) {
      reset(with(Policy::random, -1, seed));
      Three three;
      three.issue();
      drain();
      ASSERT_EQ(three.ran.size(), 6U);
      for (const char name : {'a', 'b', 'c'}) {
        EXPECT_LT(three.ran.find(name), three.ran.find(static_cast<char>(name - 'a' + 'A')));
      }
      if (again == 0) first = three.ran;
      EXPECT_EQ(three.ran, first);
    }
    orders.insert(first);
  }
  EXPECT_GT(orders.size(), 5U);
}

TEST(CudasimPolicy, CanBeChanged) {
  reset(with(Policy::lazy));
  Three three;
  three.issue();
  set_policy(Policy::eager);
  EXPECT_EQ(three.ran.size(), 6U);  // what was pending has run
  three.issue();
  EXPECT_EQ(three.ran.size(), 12U);
}

TEST(CudasimPolicy, AQueueHasALimit) {
  reset(with(Policy::lazy));
  const Stream stream;
  int ran = 0;
  for (int i = 0; i < 10000; ++i) stream.run("k", {}, [&ran] { ++ran; });
  EXPECT_GT(ran, 0);
  EXPECT_LT(pending(), 10000U);
}

TEST(CudasimPolicy, QueriesTellTheTruth) {
  reset(with(Policy::lazy));
  const Stream stream;
  cudaEvent_t event = nullptr;
  ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  EXPECT_EQ(cudaStreamQuery(stream.get()), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
  stream.run("k", {}, [] {});
  ok(cudaEventRecord(event, stream.get()));
  EXPECT_EQ(cudaStreamQuery(stream.get()), cudaErrorNotReady);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady);
  ok(cudaEventSynchronize(event));
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(stream.get()), cudaSuccess);
  ok(cudaEventDestroy(event));
}

TEST(CudasimPolicy, AQueryOrdersTheHost) {
  for (const Config& config : schedules(1, 2, 5)) {
    reset(config);
    {
      const Stream one;
      const Stream two;
      Floats data(100, one);
      one.write("fill", data.data(), 100, 1);
      while (cudaStreamQuery(one.get()) == cudaErrorNotReady) {
      }
      two.read("use", data.data(), 100);
      data.record_stream(two);
    }
    EXPECT_EQ(take_errors(), std::vector<std::string>()) << name_of(config);
  }
}

TEST(CudasimPolicy, APollingLoopEnds) {
  for (const Config& config : schedules(1, 1, 5)) {
    reset(config);
    const Stream stream;
    bool ran = false;
    stream.run("k", {}, [&ran] { ran = true; });
    int polls = 0;
    while (cudaStreamQuery(stream.get()) == cudaErrorNotReady) ++polls;
    EXPECT_TRUE(ran);
    EXPECT_LE(polls, 64);
  }
}

TEST(CudasimPolicy, LateAnswers) {
  Config config = with(Policy::eager);
  config.late_polls = 2;
  reset(config);
  const Stream stream;
  bool ran = false;
  stream.run("k", {}, [&ran] { ran = true; });
  EXPECT_TRUE(ran);
  EXPECT_EQ(cudaStreamQuery(stream.get()), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamQuery(stream.get()), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamQuery(stream.get()), cudaSuccess);
  stream.run("k", {}, [] {});
  stream.synchronize();  // after which nothing is left to find out
  EXPECT_EQ(cudaStreamQuery(stream.get()), cudaSuccess);
}

class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    setenv(name, value, 1);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment() {
    if (before_) {
      setenv(name_, before_->c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

TEST(CudasimPolicy, FromTheEnvironment) {
  const Environment devices("CUDASIM_DEVICES", "5");
  const Environment policy("CUDASIM_POLICY", "favour:7");
  const Environment seed("CUDASIM_SEED", "42");
  const Environment polls("CUDASIM_LATE_POLLS", "3");
  const Environment traps("CUDASIM_TRAPS", "0");
  const Config config = config_from_environment();
  EXPECT_FALSE(config.traps);
  EXPECT_EQ(config.devices, 5);
  EXPECT_EQ(config.policy, Policy::favour);
  EXPECT_EQ(config.pick, 7);
  EXPECT_EQ(config.seed, 42U);
  EXPECT_EQ(config.late_polls, 3);
}

TEST(CudasimPolicy, FromAnUnreadableEnvironment) {
  for (const char* text : {"", "bold", "starve", "starve:", "starve:x", "lazy:1", "favour:-1"}) {
    const Environment policy("CUDASIM_POLICY", text);
    EXPECT_THROW(config_from_environment(), std::invalid_argument) << text;
  }
  const Environment devices("CUDASIM_DEVICES", "two");
  EXPECT_THROW(config_from_environment(), std::invalid_argument);
}

}  // namespace policy_test
}  // namespace cudasim::test
