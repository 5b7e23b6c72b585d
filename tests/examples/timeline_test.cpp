// SPDX-License-Identifier: Apache-2.0
#include <lockstep/profile/chrome_trace.hpp>
#include <lockstep/profile/timeline.hpp>

#include "data/files.hpp"
#include "examples/program.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <sys/wait.h>

// examples/timeline.py on timelines that lockstep has written.
namespace lockstep {
namespace timeline_test {

using profile::FunctionEvent;
using testing::contains;
using testing::read_file;
using testing::write_file;

class TimelineScript : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("python3 -c '' >/dev/null 2>&1") != 0) GTEST_SKIP() << "lacks python3";
  }

  // Five steps of 2 ms on two devices, the third of which takes 9 ms.
  std::string write(const std::string& name, const std::string& other = "apply") const {
    std::vector<FunctionEvent> main;
    std::vector<FunctionEvent> compute;
    std::int64_t begin = 100'000;
    for (int step = 0; step < 5; ++step) {
      const std::int64_t end = begin + (step == 2 ? 9'000'000 : 2'000'000);
      main.push_back({"step", "main", begin, end - 100'000, 0});
      main.push_back({"scatter", "main", begin + 1, begin + 300'000, 4096});
      compute.push_back({other, "cpu:0 compute", begin + 300'000, end - 200'000, 0});
      begin = end;
    }
    main.insert(main.end(), compute.begin(), compute.end());
    const std::string path = (directory_ / name).string();
    std::ofstream file(path);
    file << profile::detail::chrome_trace(main, 0);
    return path;
  }

  // The exit status; what was printed is in `printed_`.
  int draw(const std::string& arguments) {
    const std::string out = (directory_ / "printed").string();
    const std::string script = LOCKSTEP_TEST_DATA_DIR "/../../examples/timeline.py";
    const int status = std::system(("python3 '" + script + "' -o " + picture() + " " + arguments +
                                    " >" + out + " 2>&1 </dev/null")
                                       .c_str());
    printed_ = read_file(out);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  std::string picture() const { return (directory_ / "picture.svg").string(); }

  static std::size_t count(const std::string& text, const std::string& part) {
    std::size_t found = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
      ++found;
    }
    return found;
  }

  testing::TempDirectory directory_;
  std::string printed_;
};

TEST_F(TimelineScript, DrawsTwoStepsOfEachTimelineAtOneScale) {
  const std::string one = write("one.json");
  const std::string two = write("two.json", "<user's>");
  ASSERT_EQ(draw("'without=" + one + "' 'with=" + two + "'"), 0) << printed_;
  EXPECT_EQ(printed_, "");
  const std::string svg = read_file(picture());
  // The median of 4, 11, 11.
  EXPECT_TRUE(contains(svg, "<svg ", "without: 11.0 ms", "with: 11.0 ms", ">main<",
                       ">cpu:0 compute<", ">apply<", "4096 bytes",
                       "&lt;user&#x27;s&gt;: ", "</svg>"));
  EXPECT_EQ(count(svg, "<title>scatter: 0.300 ms"), 4U);
  EXPECT_EQ(count(svg, "<title>step"), 0U);
}

TEST_F(TimelineScript, DrawsAsManyStepsAsAskedFor) {
  ASSERT_EQ(draw("--steps 1 " + write("one.json")), 0) << printed_;
  const std::string svg = read_file(picture());
  EXPECT_EQ(count(svg, "<title>scatter"), 1U);
  EXPECT_EQ(count(svg, "class=\"label\""), 0U);
}

TEST_F(TimelineScript, ARangeMayHaveANameOfTheFormat) {
  ASSERT_EQ(draw(write("one.json", "thread_name")), 0) << printed_;
  EXPECT_TRUE(contains(read_file(picture()), "<title>thread_name: ", ">cpu:0 compute<"));
}

TEST_F(TimelineScript, SaysInOneLineWhatItCannotDraw) {
  const std::string good = write("good.json");
  const std::string bad = (directory_ / "bad.json").string();
  for (const char* text :
       {"", "[]", "{\"traceEvents\": [{\"ph\": \"X\"}]}", "{\"traceEvents\": 1}"}) {
    write_file(bad, text);
    EXPECT_EQ(draw(bad), 1) << text;
    EXPECT_TRUE(contains(printed_, "timeline.py: " + bad + " is not a timeline")) << text;
    EXPECT_EQ(testing::lines_of(printed_).size(), 1U) << printed_;
  }
  EXPECT_EQ(draw("/nowhere/x.json"), 1);
  EXPECT_TRUE(contains(printed_, "timeline.py: /nowhere/x.json: No such file or directory"));
  EXPECT_EQ(draw("--steps 5 " + good), 1);
  EXPECT_TRUE(contains(printed_, good + " has 5 ranges \"step\", too few to draw 5 of them"));
  EXPECT_EQ(draw("--steps 0 " + good), 2);
  EXPECT_EQ(draw("-o /nowhere/x.svg " + good), 1);
  EXPECT_TRUE(contains(printed_, "/nowhere/x.svg"));
}

}  // namespace timeline_test
}  // namespace lockstep
