// SPDX-License-Identifier: Apache-2.0
#include <lockstep/profile/profiler.hpp>
#include <lockstep/profile/record_function.hpp>

#include "profile/rows.hpp"
#include "support/count_operator_new.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace lockstep::profile {
namespace record_function_test {

using testing::names_in;
using Names = std::vector<std::string>;

std::uint64_t allocations_of(std::size_t ranges, const std::string& name) {
  const std::uint64_t before = testing::operator_new_calls();
  for (std::size_t i = 0; i < ranges; ++i) {
    const RecordFunction outer("a literal");
    const RecordFunction inner(name);
  }
  return testing::operator_new_calls() - before;
}

TEST(RecordFunction, AllocatesNothingWhileNothingIsRecorded) {
  const std::string name = "a name that is too long to lie in the string itself";
  EXPECT_FALSE(enabled());
  EXPECT_EQ(allocations_of(1000, name), 0U);
  Profiler profiler;
  EXPECT_TRUE(enabled());
  EXPECT_GT(allocations_of(1000, name), 0U);
  // From then on a chunk for many ranges at a time.
  EXPECT_LE(allocations_of(1000, name), 2000U / 512 + 1);
  profiler.stop();
  EXPECT_FALSE(enabled());
  EXPECT_EQ(allocations_of(1000, name), 0U);
}

TEST(RecordFunction, KeepsNamesThatWereMadeAtRunTime) {
  Profiler profiler;
  for (int i = 0; i < 3; ++i) {
    std::string name = "step " + std::to_string(i);
    { const RecordFunction range(name); }
    name.assign(name.size(), '?');
  }
  EXPECT_EQ(names_in(profiler.events(), "main"), (Names{"step 0", "step 1", "step 2"}));
}

// The system keeps the first 15 characters.
TEST(RecordFunction, MayEndWhenTheThreadsNameIsGone) {
  struct Last {
    ~Last() { const RecordFunction range("last"); }
  };
  Profiler profiler;
  std::thread([] {
    thread_local const Last last;
    (void)&last;
    name_thread("0123456789abcdef, with more than a string holds in itself");
  }).join();
  EXPECT_EQ(names_in(profiler.events(), "0123456789abcde"), (Names{"last"}));
}

TEST(RecordFunction, KeepsTheBytes) {
  Profiler profiler;
  { const RecordFunction range("copy", {}, {.bytes = 12}); }
  ASSERT_EQ(profiler.events().size(), 1U);
  EXPECT_EQ(profiler.events()[0].bytes, 12U);
}

// What a tool would see of the ranges.
Names& heard() {
  static Names names;
  return names;
}
constexpr detail::RangeListener kListener{[](const char* name) { heard().emplace_back(name); },
                                          [] { heard().emplace_back("end"); }};

TEST(RangeListener, HearsTheNamesWhetherOrNotTheyAreRecorded) {
  heard().clear();
  detail::Recorder::instance().listen(&kListener);
  EXPECT_TRUE(enabled());
  {
    const RecordFunction outer("outer");
    const RecordFunction inner(std::string("inner"));
  }
  EXPECT_EQ(heard(), (Names{"outer", "inner", "end", "end"}));

  heard().clear();
  Profiler profiler;
  { const RecordFunction range(std::string("recorded")); }
  profiler.stop();
  EXPECT_TRUE(enabled());
  EXPECT_EQ(heard(), (Names{"recorded", "end"}));
  EXPECT_EQ(names_in(profiler.events(), "main"), (Names{"recorded"}));

  heard().clear();
  {
    const RecordFunction range("begun while it listens");
    detail::Recorder::instance().listen(nullptr);
    const RecordFunction unheard("unheard");
  }
  EXPECT_FALSE(enabled());
  EXPECT_EQ(heard(), (Names{"begun while it listens", "end"}));
}

}  // namespace record_function_test
}  // namespace lockstep::profile
