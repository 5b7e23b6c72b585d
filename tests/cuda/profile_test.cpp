// SPDX-License-Identifier: Apache-2.0
#include <lockstep/autograd/engine.hpp>
#include <lockstep/backend/streams.hpp>
#include <lockstep/nn/linear.hpp>
#include <lockstep/ops/arithmetic.hpp>
#include <lockstep/ops/reduce.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/parallel/data_parallel.hpp>
#include <lockstep/profile/profiler.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/random.hpp>

#include <cudasim/cudasim.hpp>

#include "cuda/schedules.hpp"
#include "profile/rows.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// A Profiler's timeline of GPUs: events with timing on their streams.
namespace lockstep::profile {
namespace profile_test {

using testing::merge_rows;
using testing::names_in;
using testing::nothing_crosses;
using testing::rows_of;
using testing::under_each_policy;
using Names = std::vector<std::string>;

// The only range of this name in this row.
const FunctionEvent& find(const std::vector<FunctionEvent>& events, const std::string& name,
                          const std::string& row) {
  const auto wanted = [&](const FunctionEvent& event) {
    return event.name == name && event.row == row;
  };
  EXPECT_EQ(std::count_if(events.begin(), events.end(), wanted), 1) << name << " in " << row;
  static const FunctionEvent none;
  const auto found = std::find_if(events.begin(), events.end(), wanted);
  return found == events.end() ? none : *found;
}

TEST(ProfileGpus, ARangeIsTimedWhenTheGpuDoesIt) {
  under_each_policy([] {
    const Tensor host = ones({1 << 16});
    Profiler profiler;
    {
      const RecordFunction range("upload", Device("cuda:1"));
      const Tensor there = host.to("cuda:1");
    }
    const std::vector<FunctionEvent>& events = profiler.events();
    EXPECT_TRUE(nothing_crosses(events));
    EXPECT_EQ(names_in(events, "main"), (Names{"upload", "copy"}));
    const FunctionEvent& upload = find(events, "upload", "cuda:1 compute");
    EXPECT_GE(upload.begin_ns, find(events, "upload", "main").begin_ns);
    const FunctionEvent& copy = find(events, "copy", "cuda:1 compute");
    EXPECT_EQ(copy.bytes, std::uint64_t{4} << 16);
    EXPECT_LE(upload.begin_ns, copy.begin_ns);
    EXPECT_LE(copy.end_ns, upload.end_ns);
  });
}

// The GPU begins with nothing before the host waits for it, so that all it does lies behind what
// the host did to issue it.
TEST(ProfileGpus, TheThreadHasTheTimeOfIssuingTheDeviceThatOfDoing) {
  testing::under(cudasim::Policy::lazy, 1, [] {
    const Tensor host = ones({1 << 16});
    (void)host.to("cuda:2");  // its streams and their clock are there
    {
      const Profiler before;
      const RecordFunction range("first", Device("cuda:2"));
    }
    Profiler profiler;
    {
      const RecordFunction range("issue", Device("cuda:2"));
      const Tensor there = host.to("cuda:2");
    }
    { const RecordFunction range("behind"); }
    const std::vector<FunctionEvent>& events = profiler.events();
    EXPECT_GE(find(events, "issue", "cuda:2 compute").end_ns,
              find(events, "behind", "main").end_ns);
  });
}

TEST(ProfileGpus, AStepHasTheRowsOfEachDevice) {
  under_each_policy([] {
    DataParallel model{nn::Linear{64, 32}, {"cuda:0", "cuda:3"}};
    const Tensor input = randn({512, 64});
    Profiler profiler;
    model(input).sum().backward();
    std::vector<FunctionEvent> events = profiler.events();
    EXPECT_TRUE(nothing_crosses(events));
    merge_rows(events);
    // The second replica's launches are issued by the caller or by another thread.
    Names rows = rows_of(events);
    std::erase_if(rows, [](const std::string& row) { return row.rfind("cuda:", 0) != 0; });
    EXPECT_EQ(rows, (Names{"cuda:0 compute", "cuda:0 copy", "cuda:3 compute", "cuda:3 copy"}));
    for (const char* row : {"cuda:0 compute", "cuda:3 compute"}) {
      (void)find(events, "apply", row);
      (void)find(events, "backward", row);
    }
    EXPECT_GE(find(events, "backward", "cuda:3 compute").begin_ns,
              find(events, "apply", "cuda:3 compute").end_ns);
  });
}

// A device that is listed twice computes on two streams.
TEST(ProfileGpus, ReplicasOfOneGpuLieBesideEachOther) {
  DataParallel model{nn::Linear{64, 32}, {"cuda:0", "cuda:0"}};
  Profiler profiler;
  (void)model(randn({512, 64}));
  const std::vector<FunctionEvent>& events = profiler.events();
  EXPECT_TRUE(nothing_crosses(events));
  EXPECT_EQ(std::count_if(events.begin(), events.end(),
                          [](const FunctionEvent& event) {
                            return event.name == "apply" && event.row.starts_with("cuda:0 compute");
                          }),
            2);
}

TEST(ProfileGpus, EventsThatCannotBeHadLeaveTheRangeInTheThread) {
  Profiler profiler;
  (void)ones({2}).to("cuda:0");
  cudasim::fail_next("cudaEventRecord", cudaErrorMemoryAllocation);
  { const RecordFunction range("unmarked", Device("cuda:0")); }
  { const RecordFunction range("marked", Device("cuda:0")); }
  cudasim::fail_next("cudaEventElapsedTime", cudaErrorInvalidResourceHandle, 1000);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  const Names main = names_in(profiler.events(), "main");
  EXPECT_EQ(std::count(main.begin(), main.end(), "unmarked"), 1);
  EXPECT_EQ(std::count(main.begin(), main.end(), "marked"), 1);
  EXPECT_EQ(rows_of(profiler.events()), (Names{"main"}));
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  cudasim::mend();
}

TEST(ProfileGpus, WithoutAProfilerNoEventIsRecorded) {
  const Tensor host = ones({8});
  (void)host.to("cuda:0");
  cudasim::record_calls(true);
  { const RecordFunction range("apply", Device("cuda:0")); }
  EXPECT_TRUE(cudasim::take_calls().empty());
}

}  // namespace profile_test
}  // namespace lockstep::profile
