// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/host/host_stream.hpp>

#include "support/expect_error.hpp"
#include "support/forked.hpp"
#include "support/gate.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep::detail {
namespace host_stream_test {

using testing::Gate;
using testing::throws;
using Mode = HostStream::Mode;

// A background thread may use a stream until the process ends, so these are never destroyed.
Stream new_stream(Mode mode) {
  static auto& streams = *new std::vector<std::unique_ptr<HostStream>>;
  return Stream(*streams.emplace_back(std::make_unique<HostStream>(Device("cpu:0"), mode)));
}

HostStream& host(const Stream& stream) { return static_cast<HostStream&>(stream.state()); }

TEST(HostStream, RunsQueuedOperationsInTheOrderIssued) {
  Gate gate;
  const Stream stream = new_stream(Mode::queued);
  gate.hold(stream);
  std::vector<int> seen;
  for (int i = 0; i < 100; ++i) host(stream).submit([&seen, i] { seen.push_back(i); });
  EXPECT_FALSE(stream.query());
  gate.open();
  stream.synchronize();
  EXPECT_TRUE(stream.query());
  std::vector<int> expected(100);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(seen, expected);
}

TEST(HostStream, GoesOnInOrderAfterItsQueueHasWrappedAround) {
  const Stream stream = new_stream(Mode::queued);
  std::vector<int> seen;
  int next = 0;
  for (const int burst : {10, 10, 10, 40, 3, 70}) {
    Gate gate;
    gate.hold(stream);
    for (int i = 0; i < burst; ++i, ++next) {
      host(stream).submit([&seen, next] { seen.push_back(next); });
    }
    gate.open();
    stream.synchronize();
  }
  std::vector<int> expected(static_cast<std::size_t>(next));
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(seen, expected);
}

TEST(HostStream, RunsImmediateOperationsInTheIssuer) {
  const Stream stream = new_stream(Mode::immediate);
  std::thread::id thread;
  host(stream).submit([&] { thread = std::this_thread::get_id(); });
  EXPECT_EQ(thread, std::this_thread::get_id());
  EXPECT_TRUE(stream.query());
}

TEST(HostStream, ChangesModeOnceItsWorkHasEnded) {
  const Stream stream = new_stream(Mode::queued);
  int value = 0;
  host(stream).submit([&] { value = 1; });
  host(stream).set_mode(Mode::immediate);
  EXPECT_EQ(value, 1);
  host(stream).submit([&] { value = 2; });
  EXPECT_EQ(value, 2);
  host(stream).set_mode(Mode::queued);
  host(stream).submit([&] { value = 3; });
  stream.synchronize();
  EXPECT_EQ(value, 3);
}

TEST(HostStream, WaitsForWhatAnotherQueuedStreamHasSoFarAndNoMore) {
  Gate later;
  Gate gate;
  const Stream producer = new_stream(Mode::queued);
  const Stream consumer = new_stream(Mode::queued);
  int value = 0;
  int seen = 0;
  gate.hold(producer);
  host(producer).submit([&] { value = 1; });
  consumer.wait_stream(producer);
  host(consumer).submit([&] { seen = value; });
  later.hold(producer);
  EXPECT_FALSE(consumer.query());
  gate.open();
  consumer.synchronize();
  EXPECT_EQ(seen, 1);
  EXPECT_TRUE(consumer.query());
  EXPECT_FALSE(producer.query());
  later.open();
  producer.synchronize();
}

TEST(HostStream, WaitsForEveryStreamItWasToldToWaitFor) {
  const Stream a = new_stream(Mode::queued);
  const Stream b = new_stream(Mode::queued);
  for (const Mode mode : {Mode::queued, Mode::immediate}) {
    Gate gate_a;
    Gate gate_b;
    const Stream joined = new_stream(mode);
    gate_a.hold(a);
    gate_b.hold(b);
    joined.wait_stream(a);
    joined.wait_stream(b);
    gate_b.open();
    b.synchronize();
    EXPECT_FALSE(joined.query());
    gate_a.open();
    joined.synchronize();
    EXPECT_TRUE(joined.query());
  }
}

TEST(HostStream, DoesNotWaitForItselfOrForAnIdleStream) {
  Gate gate;
  const Stream idle = new_stream(Mode::queued);
  const Stream stream = new_stream(Mode::immediate);
  stream.wait_stream(idle);
  stream.wait_stream(stream);
  EXPECT_TRUE(stream.query());
  const Stream held = new_stream(Mode::queued);
  gate.hold(held);
  held.wait_stream(held);
  held.wait_event(held.record_event());
  gate.open();
  held.synchronize();
}

TEST(HostStream, KeepsAWaitForTheNextOperationOfAnImmediateStream) {
  int value = 0;
  int seen = 0;
  bool was_open = false;
  std::jthread issuer;
  Gate later;
  Gate gate;
  const Stream copy = new_stream(Mode::queued);
  const Stream compute = new_stream(Mode::immediate);
  gate.hold(copy);
  host(copy).submit([&] { value = 1; });
  compute.wait_stream(copy);  // the caller comes back at once
  EXPECT_FALSE(compute.query());
  const Event event = compute.record_event();
  EXPECT_FALSE(event.query());

  issuer = std::jthread([&] {
    host(compute).submit([&] {
      seen = value;
      was_open = gate.is_open();
    });
  });
  gate.open();
  issuer.join();
  EXPECT_EQ(seen, 1);
  EXPECT_TRUE(was_open);
  EXPECT_TRUE(event.query());
  EXPECT_TRUE(compute.query());

  // The wait is paid: what the other stream does now is no concern of this one.
  later.hold(copy);
  host(compute).submit([&] { seen = 2; });
  EXPECT_EQ(seen, 2);
  later.open();
  copy.synchronize();
}

TEST(HostStream, IsIdleOnceItsWaitsHaveHappenedEvenWithoutAnOperation) {
  Gate gate;
  const Stream copy = new_stream(Mode::queued);
  const Stream compute = new_stream(Mode::immediate);
  gate.hold(copy);
  compute.wait_stream(copy);
  const Event event = compute.record_event();
  EXPECT_FALSE(compute.query());
  gate.open();
  copy.synchronize();
  EXPECT_TRUE(compute.query());
  EXPECT_TRUE(event.query());
  EXPECT_TRUE(compute.record_event().query());
}

TEST(HostStream, SynchronizePaysTheWaitsOfAnImmediateStream) {
  int value = 0;
  Gate gate;
  const Stream copy = new_stream(Mode::queued);
  const Stream compute = new_stream(Mode::immediate);
  gate.hold(copy);
  host(copy).submit([&] { value = 1; });
  compute.wait_stream(copy);
  gate.open();
  compute.synchronize();
  EXPECT_EQ(value, 1);
}

TEST(HostStream, LetsEveryThreadThatIssuesWaitNotOnlyTheFirst) {
  constexpr std::size_t kThreads = 4;
  int value = 0;
  std::array<int, kThreads> seen{};
  std::vector<std::jthread> issuers;
  Gate gate;
  const Stream copy = new_stream(Mode::queued);
  const Stream compute = new_stream(Mode::immediate);
  gate.hold(copy);
  host(copy).submit([&] { value = 1; });
  compute.wait_stream(copy);
  for (int& mine : seen) {
    issuers.emplace_back([&] { host(compute).submit([&] { mine = value; }); });
  }
  gate.open();
  issuers.clear();
  EXPECT_EQ(seen, (std::array<int, kThreads>{1, 1, 1, 1}));
}

TEST(HostStream, CarriesAWaitOnThroughAnImmediateStream) {
  for (const bool through_event : {true, false}) {
    int value = 0;
    int seen = 0;
    Gate gate;
    const Stream copy = new_stream(Mode::queued);
    const Stream compute = new_stream(Mode::immediate);
    const Stream third = new_stream(Mode::queued);
    gate.hold(copy);
    host(copy).submit([&] { value = 1; });
    compute.wait_stream(copy);
    if (through_event) {
      third.wait_event(compute.record_event());
    } else {
      third.wait_stream(compute);
    }
    host(third).submit([&] { seen = value; });
    EXPECT_FALSE(third.query());
    gate.open();
    third.synchronize();
    EXPECT_EQ(seen, 1);
  }
}

TEST(HostStream, CarriesAWaitOnThroughTwoImmediateStreams) {
  int value = 0;
  Gate gate;
  const Stream copy = new_stream(Mode::queued);
  const Stream first = new_stream(Mode::immediate);
  const Stream second = new_stream(Mode::immediate);
  gate.hold(copy);
  host(copy).submit([&] { value = 1; });
  first.wait_stream(copy);
  second.wait_stream(first);
  EXPECT_FALSE(second.query());
  gate.open();
  second.synchronize();
  EXPECT_EQ(value, 1);
}

TEST(HostStream, RecordsAnEventThatLaterWorkDoesNotDelay) {
  Gate later;
  Gate gate;
  const Stream stream = new_stream(Mode::queued);
  EXPECT_TRUE(stream.record_event().query());
  gate.hold(stream);
  const Event event = stream.record_event();
  later.hold(stream);
  EXPECT_FALSE(event.query());
  gate.open();
  event.synchronize();
  EXPECT_TRUE(event.query());
  EXPECT_FALSE(stream.query());
  later.open();
  stream.synchronize();
}

TEST(HostStream, KnowsWhichStreamsAnEventPrecedesByItself) {
  Gate gate;
  const Stream copy = new_stream(Mode::queued);
  const Stream compute = new_stream(Mode::immediate);
  const Stream other = new_stream(Mode::immediate);
  gate.hold(copy);
  compute.wait_stream(copy);
  const EventPtr on_copy = copy.state().record();
  const EventPtr on_compute = compute.state().record();
  EXPECT_TRUE(on_copy->precedes_new_work_of(copy.state()));
  EXPECT_FALSE(on_copy->precedes_new_work_of(other.state()));
  EXPECT_TRUE(on_compute->precedes_new_work_of(compute.state()));
  EXPECT_TRUE(on_compute->precedes_new_work_of(copy.state()));
  EXPECT_FALSE(on_compute->precedes_new_work_of(other.state()));
  gate.open();
  copy.synchronize();
  EXPECT_TRUE(on_copy->precedes_new_work_of(other.state()));
  EXPECT_TRUE(on_compute->precedes_new_work_of(other.state()));
}

TEST(HostStream, ThrowsWhatAQueuedOperationThrewOnceAndGoesOn) {
  const Stream stream = new_stream(Mode::queued);
  bool ran = false;
  host(stream).submit([] { throw std::out_of_range("the first"); });
  host(stream).submit([] { throw std::out_of_range("the second"); });
  host(stream).submit([&] { ran = true; });
  EXPECT_TRUE(throws<std::out_of_range>([&] { stream.synchronize(); }, "the first"));
  EXPECT_TRUE(ran);
  EXPECT_NO_THROW(stream.synchronize());
  host(stream).submit([] { throw std::out_of_range("the third"); });
  EXPECT_TRUE(throws<std::out_of_range>([&] { stream.synchronize(); }, "the third"));
}

// A copy that has failed, and a kernel that would read what it was to write.
TEST(HostStream, WhoeverWaitsForAQueuedOperationThatThrewIsTold) {
  const Stream copy = new_stream(Mode::queued);
  const Stream compute = new_stream(Mode::immediate);
  const Event before = copy.record_event();
  host(copy).submit([] { throw std::out_of_range("the copy"); });
  const Event first = copy.record_event();
  const Event second = copy.record_event();
  while (!copy.query()) std::this_thread::yield();
  compute.wait_event(before);
  EXPECT_NO_THROW(host(compute).submit([] {}));
  const auto told = [&](const Event& event, const Stream& stream) {
    bool ran = false;
    stream.wait_event(event);
    const auto use = [&] {
      host(stream).submit([&] { ran = true; });
      stream.synchronize();
    };
    return throws<std::out_of_range>(use, "the copy") && !(ran && stream == compute);
  };
  EXPECT_TRUE(told(first, compute));
  EXPECT_NO_THROW(host(compute).submit([] {}));
  EXPECT_TRUE(told(first, compute));  // as often as it is asked
  EXPECT_TRUE(told(second, compute));
  EXPECT_TRUE(told(second, new_stream(Mode::queued)));
  EXPECT_NO_THROW(copy.synchronize());
  compute.wait_stream(copy);
  EXPECT_NO_THROW(host(compute).submit([] {}));
  EXPECT_NO_THROW(copy.record_event().synchronize());
}

TEST(HostStream, WhatAQueuedOperationThrewComesToTheNextOperationOfTheStreamThatWaits) {
  const Stream copy = new_stream(Mode::queued);
  const Stream compute = new_stream(Mode::immediate);
  for (const bool ended : {true, false}) {
    Gate gate;
    if (!ended) gate.hold(copy);
    host(copy).submit([] { throw std::out_of_range("the copy"); });
    while (ended && !copy.query()) std::this_thread::yield();
    compute.wait_stream(copy);
    gate.open();
    EXPECT_TRUE(throws<std::out_of_range>([&] { host(compute).submit([] {}); }, "the copy"));
    EXPECT_NO_THROW(host(compute).submit([] {}));
    EXPECT_NO_THROW(copy.synchronize());
  }
}

// What a stream was told to wait for has ended, badly, before another one waits for that stream.
TEST(HostStream, AFailureIsToldThroughAStreamWhoseWaitIsOver) {
  const Stream copy = new_stream(Mode::queued);
  const Stream between = new_stream(Mode::immediate);
  const Stream compute = new_stream(Mode::immediate);
  host(copy).submit([] { throw std::out_of_range("the copy"); });
  between.wait_stream(copy);
  while (!copy.query()) std::this_thread::yield();
  compute.wait_stream(between);
  EXPECT_TRUE(throws<std::out_of_range>([&] { host(compute).submit([] {}); }, "the copy"));
  EXPECT_NO_THROW(host(compute).submit([] {}));
  const Event event = between.record_event();
  EXPECT_TRUE(throws<std::out_of_range>([&] { event.synchronize(); }, "the copy"));
  EXPECT_TRUE(throws<std::out_of_range>([&] { host(between).submit([] {}); }, "the copy"));
  compute.wait_stream(between);
  EXPECT_NO_THROW(host(compute).submit([] {}));
}

TEST(HostStream, OneFailureHidesNoOther) {
  const Stream copy = new_stream(Mode::queued);
  const auto fail = [&](const char* what) {
    host(copy).submit([what] { throw std::out_of_range(what); });
    return copy.record_event();
  };
  const auto told = [](const Event& event, const char* what) {
    return throws<std::out_of_range>([&] { event.synchronize(); }, what);
  };
  const Event first = fail("the first");
  const Event second = fail("the second");
  EXPECT_TRUE(told(first, "the first"));
  const Stream compute = new_stream(Mode::immediate);
  compute.wait_stream(copy);  // which nobody has waited for
  EXPECT_TRUE(throws<std::out_of_range>([&] { host(compute).submit([] {}); }, "the second"));
  EXPECT_TRUE(told(second, "the first"));
  const Event third = fail("the third");
  EXPECT_TRUE(told(first, "the first"));
  EXPECT_TRUE(told(third, "the third"));
  for (int i = 0; i < 100; ++i) (void)fail("one of many");
  EXPECT_TRUE(throws<std::out_of_range>([&] { copy.synchronize(); }, "one of many"));
  EXPECT_NO_THROW(copy.synchronize());
  const Event eighth = [&] {
    for (int i = 0; i < 7; ++i) (void)fail("one of many");
    return fail("the eighth");
  }();
  const Event tenth = (fail("the ninth"), fail("the tenth"));
  while (!copy.query()) std::this_thread::yield();
  EXPECT_TRUE(told(eighth, "one of many"));
  EXPECT_TRUE(throws<std::out_of_range>([&] { copy.synchronize(); }, "the tenth"));
  EXPECT_TRUE(told(tenth, "one of many"));
  EXPECT_NO_THROW(copy.synchronize());
}

TEST(HostStream, AFailureThatIsToldAgainHidesNoLaterOne) {
  const Stream copy = new_stream(Mode::queued);
  const auto fail = [&](const char* what) {
    host(copy).submit([what] { throw std::out_of_range(what); });
    return copy.record_event();
  };
  const Event first = fail("the first");
  const Event second = fail("the second");
  EXPECT_TRUE(throws<std::out_of_range>([&] { first.synchronize(); }, "the first"));
  EXPECT_TRUE(throws<std::out_of_range>([&] { second.synchronize(); }, "the first"));
  EXPECT_TRUE(throws<std::out_of_range>([&] { copy.synchronize(); }, "the second"));
  EXPECT_NO_THROW(copy.synchronize());
}

TEST(HostStream, AnEventDoesNotTellOfWhatFailsAfterIt) {
  Gate gate;
  const Stream copy = new_stream(Mode::queued);
  gate.hold(copy);
  const Event before = copy.record_event();
  host(copy).submit([] { throw std::out_of_range("the copy"); });
  const Event after = copy.record_event();
  gate.open();
  while (!after.query()) std::this_thread::yield();
  EXPECT_NO_THROW(before.synchronize());
  EXPECT_TRUE(throws<std::out_of_range>([&] { after.synchronize(); }, "the copy"));
}

TEST(HostStream, AWaitForSeveralEndsWhenAllHaveAndThrowsOnce) {
  const Stream failing = new_stream(Mode::queued);
  const Stream busy = new_stream(Mode::queued);
  const Stream between = new_stream(Mode::immediate);
  const Stream compute = new_stream(Mode::immediate);
  host(failing).submit([] { throw std::out_of_range("the copy"); });
  Gate gate;
  gate.hold(busy);
  bool ended = false;
  host(busy).submit([&] { ended = true; });
  between.wait_stream(failing);
  between.wait_stream(busy);
  compute.wait_stream(between);
  std::jthread opener([&] {
    while (!failing.query()) std::this_thread::yield();
    gate.open();
  });
  EXPECT_TRUE(throws<std::out_of_range>([&] { host(compute).submit([] {}); }, "the copy"));
  EXPECT_TRUE(ended);
  EXPECT_NO_THROW(host(compute).submit([] {}));
}

TEST(HostStream, WhoOnlyGivesMemoryBackTakesNoFailureAway) {
  const Stream copy = new_stream(Mode::queued);
  host(copy).submit([] { throw std::out_of_range("the copy"); });
  copy.record_event().state()->wait_for_end();
  EXPECT_TRUE(throws<std::out_of_range>([&] { copy.synchronize(); }, "the copy"));
}

// As those of a GPU that has failed are.
class FailedEvent final : public EventState {
 public:
  bool query() const override { throw std::runtime_error("the GPU has failed"); }
  void synchronize() const override { (void)query(); }
  void wait_for_end() const override { (void)query(); }
  bool precedes_new_work_of(const StreamState&) const override { return false; }
};

TEST(HostStream, AWaitThatThrowsDoesSoOnceAndKeepsTheOthers) {
  const Stream copy = new_stream(Mode::queued);
  const Stream compute = new_stream(Mode::immediate);
  Gate gate;
  gate.hold(copy);
  bool copied = false;
  host(copy).submit([&] { copied = true; });
  host(compute).wait(std::make_shared<FailedEvent>());
  compute.wait_stream(copy);
  host(compute).wait(std::make_shared<FailedEvent>());
  gate.open();
  EXPECT_TRUE(
      throws<std::runtime_error>([&] { host(compute).submit([] {}); }, "the GPU has failed"));
  EXPECT_TRUE(copied);
  EXPECT_TRUE(compute.query());
  EXPECT_NO_THROW(host(compute).submit([] {}));
}

TEST(HostStream, ThrowsWhatAnImmediateOperationThrewAtTheCall) {
  const Stream stream = new_stream(Mode::immediate);
  EXPECT_TRUE(throws<std::out_of_range>(
      [&] { host(stream).submit([] { throw std::out_of_range("at once"); }); }, "at once"));
  EXPECT_NO_THROW(stream.synchronize());
}

TEST(HostStream, KeepsEachIssuersOrderWhereManyIssue) {
  constexpr int kThreads = 4;
  constexpr int kEach = 300;
  const Stream stream = new_stream(Mode::queued);
  std::vector<std::pair<int, int>> seen;  // written by who serves the stream
  {
    std::vector<std::jthread> issuers;
    for (int t = 0; t < kThreads; ++t) {
      issuers.emplace_back([&, t] {
        for (int i = 0; i < kEach; ++i)
          host(stream).submit([&seen, t, i] { seen.emplace_back(t, i); });
      });
    }
  }
  stream.synchronize();
  std::array<int, kThreads> next{};
  for (const auto& [thread, i] : seen) EXPECT_EQ(i, next[static_cast<std::size_t>(thread)]++);
  EXPECT_EQ(seen.size(), std::size_t{kThreads * kEach});
}

TEST(HostStream, ReleasesWhatAnOperationHeldBeforeItCountsAsDone) {
  const Stream stream = new_stream(Mode::queued);
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = held;
  host(stream).submit([held = std::move(held)] { EXPECT_EQ(*held, 1); });
  stream.synchronize();
  EXPECT_TRUE(watch.expired());
}

TEST(HostStream, RefusesWorkInAForkedChild) {
  const Stream stream = new_stream(Mode::queued);
  host(stream).submit([] {});
  stream.synchronize();
  EXPECT_TRUE(testing::refused_when_forked([&] { host(stream).submit([] {}); }));
}

// The thread that was at it exists in the parent only: an Error, not a wait for ever.
TEST(HostStream, AForkedChildDoesNotWaitForWhatWasGoingOn) {
  const Stream stream = new_stream(Mode::queued);
  std::atomic<bool> begun{false};
  std::atomic<bool> let_go{false};
  host(stream).submit([&] {
    begun = true;
    begun.notify_all();
    let_go.wait(false);
  });
  begun.wait(false);
  const Stream waits = new_stream(Mode::immediate);
  waits.wait_stream(stream);
  EXPECT_TRUE(testing::refused_when_forked([&] {
    EXPECT_THROW(host(waits).submit([] {}), Error);
    host(waits).submit([] {});  // still waits
  }));
  EXPECT_TRUE(testing::refused_when_forked([&] { stream.synchronize(); }));
  let_go = true;
  let_go.notify_all();
  stream.synchronize();
}

// Says where it lies when it is called.
template <std::size_t Bytes>
struct Whereabouts {
  std::array<unsigned char, Bytes> ballast{};
  const void** place = nullptr;
  void operator()() const { *place = this; }
};

template <std::size_t Bytes>
bool kept_inside_the_task() {
  const void* place = nullptr;
  Task task(Whereabouts<Bytes>{{}, &place});
  Task moved = std::move(task);
  moved();
  const auto begin = reinterpret_cast<std::uintptr_t>(&moved);
  const auto at = reinterpret_cast<std::uintptr_t>(place);
  return at >= begin && at < begin + sizeof moved;
}

TEST(Task, KeepsASmallFunctorInPlaceSoThatQueueingDoesNotAllocate) {
  EXPECT_TRUE(kept_inside_the_task<8>());
  EXPECT_TRUE(kept_inside_the_task<96>());
}

TEST(Task, KeepsALargeFunctorElsewhere) {
  EXPECT_FALSE(kept_inside_the_task<97>());
  EXPECT_FALSE(kept_inside_the_task<4096>());
}

TEST(Task, MayHoldWhatCanOnlyBeMoved) {
  int seen = 0;
  Task small([&seen, value = std::make_unique<int>(7)] { seen = *value; });
  Task task;
  task = std::move(small);
  task();
  EXPECT_EQ(seen, 7);
  Task large([&seen, value = std::make_unique<int>(8), ballast = std::array<char, 500>{}] {
    seen = *value + ballast[499];
  });
  task = std::move(large);
  task();
  EXPECT_EQ(seen, 8);
}

TEST(Task, DestroysWhatItHolds) {
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = held;
  Task task([held = std::move(held), ballast = std::array<char, 500>{}] { (void)ballast; });
  EXPECT_FALSE(watch.expired());
  task = Task();
  EXPECT_TRUE(watch.expired());
}

}  // namespace host_stream_test
}  // namespace lockstep::detail
