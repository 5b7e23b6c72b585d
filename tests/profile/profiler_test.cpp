// SPDX-License-Identifier: Apache-2.0
#include <lockstep/backend/host/host_backend.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/device/stream.hpp>
#include <lockstep/error.hpp>
#include <lockstep/profile/profiler.hpp>
#include <lockstep/profile/recording/recorder.hpp>
#include <lockstep/profile/recording/recording.hpp>

#include "profile/rows.hpp"
#include "support/expect_error.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <errno.h>
#include <pthread.h>

namespace lockstep::profile {
namespace profiler_test {

using lockstep::detail::HostBackend;
using lockstep::detail::StreamState;
using testing::names_in;
using testing::nothing_crosses;
using testing::rows_of;
using testing::throws;
using Names = std::vector<std::string>;

TEST(Profiler, RecordsRangesInOneAnother) {
  { const RecordFunction before("before"); }
  Profiler profiler;
  {
    const RecordFunction outer("outer");
    { const RecordFunction inner("inner"); }
    { const RecordFunction second("second"); }
  }
  { const RecordFunction behind("behind"); }
  profiler.stop();
  { const RecordFunction after("after"); }
  const std::vector<FunctionEvent>& events = profiler.events();
  EXPECT_EQ(rows_of(events), (Names{"main"}));
  EXPECT_EQ(names_in(events, "main"), (Names{"outer", "inner", "second", "behind"}));
  EXPECT_TRUE(nothing_crosses(events));
  EXPECT_GE(events[0].begin_ns, 0);
  EXPECT_LE(events[0].begin_ns, events[1].begin_ns);
  EXPECT_LE(events[2].end_ns, events[0].end_ns);
  EXPECT_LE(events[0].end_ns, events[3].begin_ns);
  EXPECT_EQ(profiler.dropped_events(), 0U);
}

TEST(Profiler, ARangeOfADeviceIsInItsRow) {
  Profiler profiler;
  {
    const RecordFunction apply("apply", Device("cpu:1"));
    const RecordFunction copy("copy", {Device("cpu:1"), Row::Kind::copy});
    const RecordFunction call("call");
  }
  const std::vector<FunctionEvent>& events = profiler.events();
  EXPECT_EQ(rows_of(events), (Names{"main", "cpu:1 compute", "cpu:1 copy"}));
  EXPECT_EQ(names_in(events, "cpu:1 copy"), (Names{"copy"}));
}

TEST(Profiler, ThreadsThatHaveEndedAreThere) {
  Profiler profiler;
  std::thread([] {
    name_thread("communication, which is a long name");
    const RecordFunction range("all_reduce");
  }).join();
  for (int pass = 0; pass < 2; ++pass) {
    std::thread([] {
      ::pthread_setname_np(::pthread_self(), "ls-loader-0");
      const RecordFunction range("load");
    }).join();
  }
  std::thread([] { const RecordFunction range("anonymous"); }).join();
  const std::vector<FunctionEvent>& events = profiler.events();
  EXPECT_EQ(rows_of(events),
            (Names{"communication, which is a long name", "ls-loader-0", "thread"}));
  EXPECT_EQ(names_in(events, "ls-loader-0"), (Names{"load", "load"}));
}

// The system keeps the first 15 characters of that name.
TEST(Profiler, AThreadWithItsProcessNameAloneHasNone) {
  std::string process = "0123456789abcdef";
  char* const own = std::exchange(::program_invocation_short_name, process.data());
  Profiler profiler;
  std::thread([] {
    ::pthread_setname_np(::pthread_self(), "0123456789abcde");
    const RecordFunction range("anonymous");
  }).join();
  ::program_invocation_short_name = own;
  EXPECT_EQ(rows_of(profiler.events()), (Names{"thread"}));
}

TEST(Profiler, OnlyOneRecordsAtATime) {
  Profiler first;
  EXPECT_TRUE(throws<Error>([] { const Profiler second; }, "Profiler: another one is recording"));
  { const RecordFunction range("still recorded"); }
  first.stop();
  Profiler second;
  { const RecordFunction range("another"); }
  EXPECT_EQ(names_in(first.events(), "main"), (Names{"still recorded"}));
  EXPECT_EQ(names_in(second.events(), "main"), (Names{"another"}));
  { const Profiler third; }  // ends with its scope
  const Profiler fourth;
}

TEST(Profiler, ARangeThatIsOpenWhenItStopsIsLeftOut) {
  auto early = std::make_unique<RecordFunction>(Literal("open when it starts"));
  std::optional<Profiler> profiler(std::in_place);
  auto late = std::make_unique<RecordFunction>(Literal("open when it stops"));
  auto text = std::make_unique<RecordFunction>(std::string("so is this, which has a name to keep"));
  early.reset();
  { const RecordFunction whole("whole"); }
  profiler->stop();
  EXPECT_EQ(names_in(profiler->events(), "main"), (Names{"whole"}));
  profiler.reset();
  late.reset();
  Profiler next;
  text.reset();
  EXPECT_TRUE(next.events().empty());
}

TEST(Profiler, MemoryIsBoundedAndWhatIsDroppedIsCounted) {
  Profiler profiler({.max_events = 700});  // more than a chunk
  for (int i = 0; i < 1000; ++i) const RecordFunction range("range");
  std::thread([] {
    for (int i = 0; i < 701; ++i) const RecordFunction range(std::to_string(i));
  }).join();
  EXPECT_EQ(profiler.dropped_events(), 301U);
  EXPECT_EQ(names_in(profiler.events(), "main").size(), 700U);
  EXPECT_EQ(profiler.events().size(), 1400U);
  EXPECT_EQ(profiler.events().back().name, "699");

  Profiler none({.max_events = 0});
  { const RecordFunction range("range"); }
  EXPECT_EQ(none.dropped_events(), 1U);
  EXPECT_TRUE(none.events().empty());
}

TEST(Profiler, EightThreadsRecordAtOnce) {
  constexpr int kRanges = 2000;
  Profiler profiler;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([t] {
        name_thread("worker-" + std::to_string(t));
        for (int i = 0; i < kRanges; ++i) {
          const RecordFunction outer(std::string(1, static_cast<char>('a' + t)));
          const RecordFunction inner("inner", Device(DeviceType::cpu, t % 2));
        }
      });
    }
  }
  const std::vector<FunctionEvent>& events = profiler.events();
  EXPECT_EQ(events.size(), 8U * 2 * kRanges);
  EXPECT_TRUE(nothing_crosses(events));
  for (int t = 0; t < 8; ++t) {
    EXPECT_EQ(names_in(events, "worker-" + std::to_string(t)),
              Names(kRanges, std::string(1, static_cast<char>('a' + t))));
  }
}

// Profilers come and go while threads make ranges without a pause: each sees whole ranges of its
// own time, and none is torn.
TEST(Profiler, StartsAndStopsWhileOthersRecord) {
  std::atomic<bool> done{false};
  std::atomic<int> running{0};
  std::vector<std::jthread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&done, &running, t] {
      const std::string name = "thread " + std::to_string(t);
      running.fetch_add(1);
      while (!done.load()) {
        const RecordFunction outer(name);
        const RecordFunction inner("inner");
      }
    });
  }
  while (running.load() < 8) std::this_thread::yield();
  std::size_t seen = 0;
  for (int round = 0; round < 30 || seen == 0; ++round) {
    Profiler profiler({.max_events = 600});
    { const RecordFunction mine("mine"); }
    std::this_thread::yield();
    if (round % 3 == 0) continue;  // destroyed while it records
    const std::vector<FunctionEvent>& events = profiler.events();
    EXPECT_EQ(names_in(events, "main"), (Names{"mine"}));
    EXPECT_TRUE(nothing_crosses(events));
    for (const FunctionEvent& event : events) {
      EXPECT_GE(event.begin_ns, 0);
      const bool known =
          event.name == "inner" || event.name == "mine" || event.name.starts_with("thread ");
      EXPECT_TRUE(known) << event.name;
    }
    seen += events.size() - 1;
  }
  done.store(true);
}

// Streams of a GPU, and when they came to their marks.
struct FakeGpu {
  static constexpr std::int64_t kLate = 1'000'000'000;
  bool fail = false;
  bool unknown = false;
  int live = 0;
  std::vector<std::string> rows;
  std::vector<StreamState*> streams;
};
FakeGpu* gpu = nullptr;

class FakeMark final : public detail::DeviceMark {
 public:
  FakeMark() { ++gpu->live; }
  ~FakeMark() override { --gpu->live; }
  std::optional<std::int64_t> time() const noexcept override {
    if (gpu->unknown) return {};
    return time_;
  }

 private:
  const std::int64_t time_ = detail::now() + FakeGpu::kLate;
};

detail::DeviceMark* mark_fake(const Row& row, StreamState* stream) noexcept {
  if (gpu->fail) return nullptr;
  gpu->rows.push_back(row.str());
  gpu->streams.push_back(stream);
  return new FakeMark;
}

class ProfilerOfGpus : public ::testing::Test {
 protected:
  ProfilerOfGpus() {
    gpu = &gpu_;
    detail::make_mark.store(&mark_fake);
  }
  ~ProfilerOfGpus() override {
    detail::make_mark.store(nullptr);
    EXPECT_EQ(gpu_.live, 0);
  }

  FakeGpu gpu_;
};

TEST_F(ProfilerOfGpus, ARangeIsTimedOnTheDeviceAndInTheThread) {
  Profiler profiler;
  auto& stream = HostBackend::instance().copy_stream(Device("cpu:0"));  // any will do
  { const RecordFunction range("apply", Device("cuda:2")); }
  {
    const RecordFunction range("copy", {Device("cuda:2"), Row::Kind::copy},
                               {.bytes = 8, .stream = &stream});
  }
  const std::vector<FunctionEvent>& events = profiler.events();
  EXPECT_EQ(rows_of(events), (Names{"main", "cuda:2 compute", "cuda:2 copy"}));
  EXPECT_EQ(names_in(events, "main"), (Names{"apply", "copy"}));
  EXPECT_EQ(names_in(events, "cuda:2 copy"), (Names{"copy"}));
  ASSERT_EQ(events.size(), 4U);
  EXPECT_LT(events[0].end_ns, FakeGpu::kLate);
  EXPECT_GE(events[2].begin_ns, FakeGpu::kLate);
  EXPECT_EQ(events[3].bytes, 8U);
  EXPECT_EQ(gpu_.rows, (Names{"cuda:2 compute", "cuda:2 compute", "cuda:2 copy", "cuda:2 copy"}));
  EXPECT_EQ(gpu_.streams, (std::vector<StreamState*>{nullptr, nullptr, &stream, &stream}));
}

TEST_F(ProfilerOfGpus, WhatTheDeviceDoesNotTellIsStillInTheThread) {
  Profiler profiler;
  gpu_.fail = true;
  { const RecordFunction range("unmarked", Device("cuda:0")); }
  gpu_.fail = false;
  {
    const RecordFunction range("half marked", Device("cuda:0"));
    gpu_.fail = true;
  }
  gpu_.fail = false;
  { const RecordFunction range("unknown", Device("cuda:0")); }
  gpu_.unknown = true;
  EXPECT_EQ(rows_of(profiler.events()), (Names{"main"}));
  EXPECT_EQ(names_in(profiler.events(), "main"), (Names{"unmarked", "half marked", "unknown"}));
}

TEST_F(ProfilerOfGpus, MarksThatNobodyAsksForAreGivenUp) {
  auto open = std::make_unique<RecordFunction>(Literal("open"), Row(Device("cuda:0")));
  {
    const Profiler profiler({.max_events = 1});
    open = std::make_unique<RecordFunction>(Literal("open"), Row(Device("cuda:0")));
    { const RecordFunction range("recorded", Device("cuda:0")); }
    { const RecordFunction range("dropped", Device("cuda:0")); }
  }
  open.reset();
}

TEST_F(ProfilerOfGpus, ARangeThatIsOpenWhenItStopsGivesItsMarkUp) {
  auto profiler = std::make_unique<Profiler>();
  { const RecordFunction range("recorded", Device("cuda:0")); }
  auto open = std::make_unique<RecordFunction>(Literal("open"), Row(Device("cuda:0")));
  profiler.reset();
  EXPECT_EQ(gpu_.live, 1);
  open.reset();
  EXPECT_EQ(gpu_.live, 0);
}

// A thread that appends when the reader has been there: nobody will ask for the mark.
TEST_F(ProfilerOfGpus, MarksThatComeTooLateAreGivenUp) {
  auto log = std::make_unique<detail::ThreadLog>("thread", 2);
  detail::RecordedEvent event{};
  EXPECT_TRUE(log->append(event));
  std::size_t drained = 0;
  log->drain([&](const detail::RecordedEvent&) { ++drained; });
  event.begin_mark = mark_fake(Device("cuda:0"), nullptr);
  EXPECT_TRUE(log->append(event));
  EXPECT_FALSE(log->append({}));
  EXPECT_EQ(drained, 1U);
}

}  // namespace profiler_test
}  // namespace lockstep::profile
