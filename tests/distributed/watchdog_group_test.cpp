// SPDX-License-Identifier: Apache-2.0
#include <lockstep/distributed/group/group_state.hpp>
#include <lockstep/distributed/group/group_watch.hpp>
#include <lockstep/distributed/process_group.hpp>
#include <lockstep/distributed/store/hash_store.hpp>
#include <lockstep/distributed/watchdog/watchdog.hpp>
#include <lockstep/tensor/creation.hpp>

#include "support/expect_error.hpp"
#include "support/sanitizers.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

// What a group makes of what the watchdog of its rank finds.
namespace lockstep::distributed {
namespace watchdog_group_test {

using namespace std::chrono_literals;
using detail::Call;
using detail::Carrier;
using detail::Done;
using detail::GroupState;
using detail::GroupWatch;
using detail::Message;
using testing::throws;

const WatchdogOptions kQuick{
    .interval = 10ms, .heartbeat_timeout = 10min, .collective_timeout = 1h};

// What the rank's carrier is to do, and has done.
struct Script {
  std::shared_ptr<Watchdog> watchdog;
  std::atomic<int> runs{0};
  std::atomic<bool> waits{false};  // for a fault, which it then ends with in words of its own
  std::atomic<bool> fails{false};
  std::atomic<bool> buffers_in_flight{false};
  std::exception_ptr mismatch{};            // what another rank has told of the calls
  std::atomic<bool> finds_mismatch{false};  // once there is a fault
  const void* input = nullptr;
};

class ScriptedCarrier final : public Carrier {
 public:
  ScriptedCarrier(int rank, int size, Script& script) : Carrier(rank, size), script_(script) {}

  void run(const Call&, std::span<const void* const> inputs, std::span<void* const>, const Stream*,
           const Done&) override {
    ++script_.runs;
    if (!inputs.empty()) script_.input = inputs[0];
    if (!script_.waits && !script_.fails && !script_.finds_mismatch) return;
    while (!script_.fails && !script_.watchdog->faulted()) std::this_thread::yield();
    check<ValueError>(!script_.finds_mismatch, "calls do not match");
    lockstep::detail::fail<Error>("connection 17 is closed");
  }
  void leave(const std::exception_ptr&) noexcept override {}
  void start(const Message&, void*, Done done, const Stream*) override { done({}); }
  std::unique_ptr<Carrier> split(std::span<const int> members) override {
    return std::make_unique<ScriptedCarrier>(0, static_cast<int>(members.size()), script_);
  }
  std::exception_ptr mismatch() noexcept override { return script_.mismatch; }
  bool buffers_in_flight() const override { return script_.buffers_in_flight; }

 private:
  Script& script_;
};

// Rank 0 has a group; rank 1 is there to fail.
class WatchdogGroup : public ::testing::Test {
 protected:
  WatchdogGroup()
      : script{.watchdog = std::make_shared<Watchdog>(0, 2, store, kQuick)},
        other(std::make_unique<Watchdog>(1, 2, store, kQuick)),
        others_progress(other->watch({0, 1})),
        group(std::make_shared<GroupState>(std::make_unique<ScriptedCarrier>(0, 2, script),
                                           std::make_shared<detail::CommunicationThread>(),
                                           Device(), GroupWatch(script.watchdog, {0, 1}))) {}

  // Returns when rank 0's carrier is at its first operation.
  void wait_until_in_flight() const {
    while (script.runs == 0) std::this_thread::yield();
  }

  // Returns when rank 0 knows.
  void let_the_other_fail() {
    other->abort("it is tired");
    while (!script.watchdog->faulted()) std::this_thread::yield();
  }

  HashStore store;
  Script script;
  std::unique_ptr<Watchdog> other;
  std::shared_ptr<Progress> others_progress;
  ProcessGroup group;
};

TEST_F(WatchdogGroup, AnOperationInFlightEndsWithWhatTheWatchdogKnows) {
  script.waits = true;
  const Work work = group.all_reduce(zeros({3}));
  wait_until_in_flight();
  other->abort("it is tired");
  EXPECT_TRUE(throws<WatchdogError>([&] { work.wait(); }, "rank 1 has failed: it is tired",
                                    "this rank, 0, is in collective #1, all_reduce(sum) of 3"));
}

TEST_F(WatchdogGroup, WhatIsIssuedAfterAFaultFailsAtOnce) {
  group.all_reduce(zeros({3})).wait();
  let_the_other_fail();
  EXPECT_TRUE(throws<WatchdogError>([&] { group.broadcast(zeros({5}), 0).wait(); },
                                    "rank 1 has failed: it is tired",
                                    "this rank, 0, is in collective #2, broadcast of 5 x f32"));
  EXPECT_TRUE(
      throws<WatchdogError>([&] { (void)group.blocking().barrier(); }, "rank 1 has failed"));
  EXPECT_TRUE(
      throws<WatchdogError>([&] { group.send(zeros({1}), 1).wait(); }, "rank 1 has failed"));
  EXPECT_TRUE(throws<WatchdogError>([&] { group.new_group({0}); }, "rank 1 has failed",
                                    "new_group of 1 ranks"));
  const ProcessGroup again(
      std::make_shared<GroupState>(std::make_unique<ScriptedCarrier>(0, 2, script),
                                   std::make_shared<detail::CommunicationThread>(), Device(),
                                   GroupWatch(script.watchdog, {0, 1})));
  EXPECT_TRUE(
      throws<WatchdogError>([&] { again.barrier().wait(); },
                            "this rank, 0, is in collective #1, barrier of group 2 of all ranks"));
  EXPECT_EQ(script.runs, 1);
}

// A rank may have ended because the calls do not match.
TEST_F(WatchdogGroup, CallsThatDoNotMatchStayTheErrorAfterAFault) {
  const auto mismatch = [](const char* text) { return std::make_exception_ptr(ValueError(text)); };
  script.mismatch = mismatch("others told");
  script.waits = true;
  const Work work = group.all_reduce(zeros({3}));
  wait_until_in_flight();
  let_the_other_fail();
  EXPECT_TRUE(throws<ValueError>([&] { work.wait(); }, "others told"));
  EXPECT_TRUE(throws<ValueError>([&] { group.barrier().wait(); }, "others told"));
  EXPECT_TRUE(throws<ValueError>([&] { group.new_group({0}); }, "others told"));
}

TEST_F(WatchdogGroup, AMismatchThatThisRankFindsStaysItsErrorAfterAFault) {
  script.finds_mismatch = true;
  EXPECT_TRUE(throws<ValueError>(
      [&] {
        const Work work = group.all_reduce(zeros({3}));
        wait_until_in_flight();
        let_the_other_fail();
        work.wait();
      },
      "do not match"));
}

TEST_F(WatchdogGroup, AnErrorWithoutAFaultStaysWhatItIs) {
  script.fails = true;
  EXPECT_TRUE(throws<Error>([&] { group.all_reduce(zeros({2})).wait(); }, "connection 17"));
  EXPECT_FALSE(script.watchdog->faulted());
}

TEST_F(WatchdogGroup, AGroupOfTheGroupIsWatchedByItself) {
  const ProcessGroup part = group.new_group({1, 0});
  script.waits = true;
  const Work work = part.all_reduce(zeros({2}));
  // The other one is in another collective of theirs.
  const auto progress = other->watch({1, 0});
  const InCollective here(progress.get(),
                          {.collective = detail::Collective::barrier, .dtype = Dtype::u8});
  EXPECT_TRUE(throws<WatchdogError>([&] { work.wait(); }, "is in collective #1",
                                    "all ranks must call the same"));
}

TEST_F(WatchdogGroup, MemoryThatACarrierMayStillUseIsNotFreed) {
  script.waits = true;
  script.buffers_in_flight = true;
  const Tensor tensor = [] {
    const lockstep::testing::MayLeak memory;
    return full({1024}, 7);
  }();
  const Work work = group.all_reduce(tensor);
  wait_until_in_flight();
  other->abort("it is tired");
  EXPECT_TRUE(throws<WatchdogError>([&] { work.wait(); }, "rank 1"));
  ASSERT_EQ(script.input, tensor.impl()->data());
  const long handles = tensor.impl().use_count();
  EXPECT_GT(handles, 1);
  // What the carrier does not get is freed.
  const Tensor freed = full({1024}, 7);
  EXPECT_TRUE(throws<WatchdogError>([&] { group.all_reduce(freed).wait(); }, "rank 1"));
  EXPECT_EQ(freed.impl().use_count(), 1);
}

}  // namespace watchdog_group_test
}  // namespace lockstep::distributed
