// SPDX-License-Identifier: Apache-2.0
#include <lockstep/device/device.hpp>
#include <lockstep/profile/timeline.hpp>

#include "profile/rows.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::profile {
namespace timeline_test {

using detail::RowKey;
using detail::Timeline;
using testing::names_in;
using testing::nothing_crosses;
using testing::rows_of;
using Names = std::vector<std::string>;

FunctionEvent range(const std::string& name, std::int64_t begin, std::int64_t end) {
  return {name, "", begin, end, 0};
}

TEST(Row, IsNamedAfterTheDeviceAndItsStream) {
  EXPECT_EQ(Row(Device("cpu:3")).str(), "cpu:3 compute");
  EXPECT_EQ(Row(Device("cuda:1"), Row::Kind::copy).str(), "cuda:1 copy");
  EXPECT_EQ(Row(Device(), Row::Kind::copy).str(), "cpu copy");
  EXPECT_EQ(Row().str(), "");
  EXPECT_TRUE(Row(Device("cuda:0")).is_gpu());
  EXPECT_FALSE(Row(Device("cpu:0")).is_gpu());
  EXPECT_FALSE(Row().is_gpu());
}

TEST(Timeline, RowsAreInOrder) {
  Timeline timeline;
  const auto add = [&](const RowKey& key) { timeline.add(key, 0, range("x", 0, 1)); };
  add(RowKey::of_device(Row(Device("cuda:0"))));
  add(RowKey::of_device(Row(Device("cpu:10"))));
  add(RowKey::of_device(Row(Device("cpu:2"), Row::Kind::copy)));
  add(RowKey::of_device(Row(Device("cpu:2"))));
  for (const char* label : {"ls-loader-10", "main", "ls-loader-9", "communication", "12345678901"})
    add(RowKey::of_thread(label));
  EXPECT_EQ(rows_of(std::move(timeline).arrange()),
            (Names{"main", "12345678901", "communication", "ls-loader-9", "ls-loader-10",
                   "cpu:2 compute", "cpu:2 copy", "cpu:10 compute", "cuda:0 compute"}));
}

// Ranges come as they end, so an inner one before the outer one.
TEST(Timeline, RangesOfOneThreadLieInOneAnother) {
  Timeline timeline;
  const RowKey row = RowKey::of_thread("main");
  timeline.add(row, 0, range("inner", 10, 20));
  timeline.add(row, 0, range("same inner", 10, 30));
  timeline.add(row, 0, range("same outer", 10, 30));
  timeline.add(row, 0, range("outer", 0, 30));
  timeline.add(row, 0, range("behind", 30, 40));
  const std::vector<FunctionEvent> events = std::move(timeline).arrange();
  EXPECT_EQ(names_in(events, "main"),
            (Names{"outer", "same outer", "same inner", "inner", "behind"}));
  EXPECT_TRUE(nothing_crosses(events));
}

TEST(Timeline, ThreadsThatShareARowAndOverlapLieBesideEachOther) {
  Timeline timeline;
  const RowKey row = RowKey::of_device(Row(Device("cpu:0")));
  timeline.add(row, 0, range("a", 0, 10));
  timeline.add(row, 1, range("b", 5, 15));
  timeline.add(row, 1, range("within b", 6, 7));
  timeline.add(row, 2, range("within a, but another thread's", 2, 3));
  timeline.add(row, 2, range("c", 20, 30));
  const std::vector<FunctionEvent> events = std::move(timeline).arrange();
  EXPECT_EQ(rows_of(events), (Names{"cpu:0 compute", "cpu:0 compute (2)"}));
  EXPECT_EQ(names_in(events, "cpu:0 compute"), (Names{"a", "c"}));
  EXPECT_EQ(names_in(events, "cpu:0 compute (2)"),
            (Names{"within a, but another thread's", "b", "within b"}));
  EXPECT_TRUE(nothing_crosses(events));
}

// A GPU's streams can do what one thread has given them at the same time.
TEST(Timeline, RangesOfOneThreadThatCrossLieBesideEachOther) {
  Timeline timeline;
  const RowKey row = RowKey::of_device(Row(Device("cuda:0")));
  timeline.add(row, 0, range("a", 0, 10));
  timeline.add(row, 0, range("b", 5, 15));
  const std::vector<FunctionEvent> events = std::move(timeline).arrange();
  EXPECT_EQ(rows_of(events), (Names{"cuda:0 compute", "cuda:0 compute (2)"}));
  EXPECT_TRUE(nothing_crosses(events));
}

}  // namespace timeline_test
}  // namespace lockstep::profile
