// SPDX-License-Identifier: Apache-2.0
#include <lockstep/error.hpp>
#include <lockstep/json_string.hpp>
#include <lockstep/profile/chrome_trace.hpp>
#include <lockstep/profile/profiler.hpp>
#include <lockstep/profile/record_function.hpp>

#include "data/files.hpp"
#include "profile/json.hpp"
#include "support/expect_error.hpp"
#include "support/file_size_limit.hpp"
#include "support/grouped_digits.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <unistd.h>

namespace lockstep::profile {
namespace chrome_trace_test {

using testing::Json;
using testing::parse_json;
using testing::throws;

Json trace_of(const std::vector<FunctionEvent>& events, std::uint64_t dropped = 0) {
  return parse_json(detail::chrome_trace(events, dropped));
}

TEST(ChromeTrace, HasARowForEachThreadAndStream) {
  const Json trace = trace_of({{"outer", "main", 0, 5000, 0},
                               {"inner", "main", 1001, 2000, 0},
                               {"copy", "cpu:0 copy", 1500, 1501, 4096}},
                              7);
  EXPECT_EQ(trace["otherData"]["dropped_events"].text, "7");
  const std::vector<Json>& events = trace["traceEvents"].array;
  ASSERT_EQ(events.size(), 1U + 2 * 2 + 3);
  EXPECT_EQ(events[0]["name"].text, "process_name");
  for (const Json& event : events) EXPECT_EQ(event["pid"].number, ::getpid());

  EXPECT_EQ(events[1]["ph"].text, "M");
  EXPECT_EQ(events[1]["name"].text, "thread_name");
  EXPECT_EQ(events[1]["args"]["name"].text, "main");
  EXPECT_EQ(events[1]["tid"].number, 1);
  EXPECT_EQ(events[2]["name"].text, "thread_sort_index");
  EXPECT_EQ(events[2]["args"]["sort_index"].number, 1);

  EXPECT_EQ(events[4]["ph"].text, "X");
  EXPECT_EQ(events[4]["name"].text, "inner");
  EXPECT_EQ(events[4]["tid"].number, 1);
  EXPECT_DOUBLE_EQ(events[4]["ts"].number, 1.001);
  EXPECT_DOUBLE_EQ(events[4]["dur"].number, 0.999);
  EXPECT_FALSE(events[4].has("args"));

  EXPECT_EQ(events[5]["args"]["name"].text, "cpu:0 copy");
  EXPECT_EQ(events[7]["tid"].number, 2);
  EXPECT_EQ(events[7]["args"]["bytes"].number, 4096);
}

TEST(ChromeTrace, OfNothingIsStillOne) { EXPECT_EQ(trace_of({})["traceEvents"].array.size(), 1U); }

TEST(ChromeTrace, TimesAreMicrosecondsWithThreeDecimals) {
  EXPECT_EQ(detail::microseconds(0), "0.000");
  EXPECT_EQ(detail::microseconds(7), "0.007");
  EXPECT_EQ(detail::microseconds(-1500), "-1.500");
  EXPECT_EQ(detail::microseconds(std::numeric_limits<std::int64_t>::max()), "9223372036854775.807");
}

TEST(ChromeTrace, NamesAreWhateverTheUserLikes) {
  EXPECT_EQ(lockstep::detail::json_string("a \"b\" \\ \n\x01"), R"("a \"b\" \\ \n\u0001")");
  EXPECT_EQ(lockstep::detail::json_string("größe → 𝄞"), "\"größe → 𝄞\"");
}

// Not UTF-8: a lone byte, a sequence cut short, a longer form than needed, half of a surrogate
// pair, a code above the last.
TEST(ChromeTrace, BytesThatAreNoTextAreReplaced) {
  const std::string bad = "\\ufffd";
  EXPECT_EQ(lockstep::detail::json_string("a\xff"
                                          "b"),
            "\"a" + bad + "b\"");
  EXPECT_EQ(lockstep::detail::json_string("\xe2\x86"), "\"" + bad + bad + "\"");
  EXPECT_EQ(lockstep::detail::json_string("\xc0\x80"), "\"" + bad + bad + "\"");
  EXPECT_EQ(lockstep::detail::json_string("\xe0\x80\x80"), "\"" + bad + bad + bad + "\"");
  EXPECT_EQ(lockstep::detail::json_string("\xed\xa0\x80"), "\"" + bad + bad + bad + "\"");
  EXPECT_EQ(lockstep::detail::json_string("\xf4\x90\x80\x80"), "\"" + bad + bad + bad + bad + "\"");
}

TEST(ExportChromeTrace, WritesAFileThatIsReadBack) {
  const testing::TempDirectory directory;
  testing::write_file(directory / "t.json", "what was there before");
  Profiler profiler;
  { const RecordFunction range("step"); }
  profiler.export_chrome_trace(directory / "t.json");
  const Json trace = parse_json(testing::read_file(directory / "t.json"));
  EXPECT_EQ(trace["traceEvents"].array.back()["name"].text, "step");
  EXPECT_FALSE(trace["traceEvents"].array.back().has("args"));
  profiler.export_chrome_trace(directory / "again.json");
  EXPECT_EQ(testing::read_file(directory / "again.json"), testing::read_file(directory / "t.json"));
}

TEST(ExportChromeTrace, WritesNumbersAsJsonHasThemInAnyLocale) {
  const testing::TempDirectory directory;
  Profiler profiler({.max_events = 1});
  { const RecordFunction range("copy", {}, {.bytes = 4096}); }
  for (int i = 0; i < 2000; ++i) const RecordFunction range("dropped");
  {
    const testing::GroupedDigits locale;
    profiler.export_chrome_trace(directory / "t.json");
  }
  const Json trace = parse_json(testing::read_file(directory / "t.json"));
  EXPECT_EQ(trace["otherData"]["dropped_events"].text, "2000");
  EXPECT_EQ(trace["traceEvents"].array.back()["args"]["bytes"].number, 4096);
}

TEST(ExportChromeTrace, NamesAFileThatCannotBeWritten) {
  Profiler profiler;
  EXPECT_TRUE(throws<DataError>([&] { profiler.export_chrome_trace("/nowhere/t.json"); },
                                "/nowhere/t.json: cannot be created: No such file or directory"));
  // A device that is always full.
  EXPECT_TRUE(throws<DataError>([&] { profiler.export_chrome_trace("/dev/full"); },
                                "/dev/full: cannot be written: No space left"));
}

TEST(ExportChromeTrace, AFailedWriteLeavesTheOldFile) {
  const testing::TempDirectory directory;
  testing::write_file(directory / "t.json", "what was there before");
  Profiler profiler;
  { const RecordFunction range("step"); }
  {
    const testing::FileSizeLimit limit(100);
    EXPECT_TRUE(throws<DataError>([&] { profiler.export_chrome_trace(directory / "t.json"); },
                                  "t.json: cannot be written: File too large"));
  }
  EXPECT_EQ(testing::read_file(directory / "t.json"), "what was there before");
}

}  // namespace chrome_trace_test
}  // namespace lockstep::profile
