// SPDX-License-Identifier: Apache-2.0
#include "mutated.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

// Part of each program of `sample`. With MUTATIONS_OF_TESTS, a file, every test that has passed
// appends a line to it: the milliseconds that it took, its name, and the numbers of the mutations
// that it met.
namespace {

class Notes final : public testing::EmptyTestEventListener {
 public:
  explicit Notes(const char* file) : file_(file) { chosen_.reached = file; }

 private:
  void OnTestStart(const testing::TestInfo&) override {
    for (auto& met : chosen_.met) met.store(false, std::memory_order_relaxed);
  }
  void OnTestEnd(const testing::TestInfo& test) override {
    if (!test.result()->Passed()) return;
    std::FILE* const file = std::fopen(file_, "a");
    if (!file) std::abort();
    std::fprintf(file, "%d %s.%s", static_cast<int>(test.result()->elapsed_time()),
                 test.test_suite_name(), test.name());
    for (int number = 0; number < mutations::kMost; ++number) {
      if (chosen_.met[number].load(std::memory_order_relaxed)) std::fprintf(file, " %d", number);
    }
    std::fprintf(file, "\n");
    std::fclose(file);
  }

  const char* const file_;
  mutations::Chosen& chosen_ = mutations::Chosen::of_process();
};

[[maybe_unused]] const bool asked = [] {
  const char* const file = std::getenv("MUTATIONS_OF_TESTS");
  if (file) testing::UnitTest::GetInstance()->listeners().Append(new Notes(file));
  return file != nullptr;
}();

}  // namespace
