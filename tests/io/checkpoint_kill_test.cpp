// SPDX-License-Identifier: Apache-2.0
#include <lockstep/io/checkpoint.hpp>
#include <lockstep/ops/to.hpp>
#include <lockstep/tensor/creation.hpp>
#include <lockstep/tensor/random.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "io/files.hpp"
#include "support/sanitizers.hpp"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

// Programs that are killed while they write checkpoints.
namespace lockstep {
namespace checkpoint_kill_test {

using testing::TempDirectory;

constexpr const char* kFileVariable = "LOCKSTEP_TEST_WRITE_CHECKPOINTS_TO";
constexpr std::int64_t kElements = 1 << 16;

// What the child does until it is killed: goes on from the file and saves step after step. A byte
// on standard output says that a step has been saved.
[[noreturn]] void write_for_ever(const std::filesystem::path& path) {
  std::int64_t step = std::filesystem::exists(path) ? io::load_checkpoint(path).step : 0;
  for (;;) {
    ++step;
    io::save_checkpoint(
        path, {.model = {{"w", full({kElements}, static_cast<double>(step))}}, .step = step});
    if (::write(STDOUT_FILENO, "", 1) != 1) std::_Exit(EXIT_FAILURE);
  }
}

// This test in a process of its own, as a writer.
class Writer {
 public:
  explicit Writer(const std::filesystem::path& path) {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0) throw Error("no pipe");
    const std::string variable = std::string(kFileVariable) + "=" + path.string();
    std::vector<char*> environment{const_cast<char*>(variable.c_str())};
    for (char** entry = environ; *entry != nullptr; ++entry) environment.push_back(*entry);
    environment.push_back(nullptr);
    std::string program = "/proc/self/exe";
    std::string filter = "--gtest_filter=CheckpointKill.TheNewestCompleteOneAlwaysLoads";
    std::string quiet = "--gtest_brief=1";
    std::array<char*, 4> arguments{program.data(), filter.data(), quiet.data(), nullptr};
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    ::posix_spawn_file_actions_addclose(&actions, ends[0]);
    const int error = ::posix_spawn(&process_, program.c_str(), &actions, nullptr, arguments.data(),
                                    environment.data());
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    saved_ = ends[0];
    if (error != 0) throw Error("cannot start a process");
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  ~Writer() { ::close(saved_); }

  // Waits until one more step has been saved; false if the process has ended instead.
  bool wait() {
    char byte = 0;
    // Before the first step the child's gtest may print a line.
    do {
      if (::read(saved_, &byte, 1) != 1) return false;
    } while (byte != 0);
    return true;
  }

  // Returns how many steps have been saved since the last `wait`.
  std::int64_t kill() {
    ::kill(process_, SIGKILL);
    int status = 0;
    ::waitpid(process_, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    std::int64_t steps = 0;
    while (wait()) ++steps;
    return steps;
  }

 private:
  pid_t process_ = 0;
  int saved_ = -1;
};

TEST(CheckpointKill, TheNewestCompleteOneAlwaysLoads) {
  using Clock = std::chrono::steady_clock;
  if (const char* file = std::getenv(kFileVariable)) write_for_ever(file);
  constexpr int kKills = testing::kSanitizer ? 50 : 200;
  const TempDirectory folder;
  const std::filesystem::path file = folder / "last.safetensors";
  Generator generator(6);
  std::int64_t step = 0;  // the last one that is known to be saved
  int cut_short = 0;
  for (int i = 0; i < kKills; ++i) {
    Writer writer(file);
    ASSERT_TRUE(writer.wait()) << "kill " << i;
    const auto first = Clock::now();
    ASSERT_TRUE(writer.wait()) << "kill " << i;
    const auto second = Clock::now();
    // A moment within the next two steps, about.
    const auto moment = second + 2 * generator.uniform() * (second - first);
    while (Clock::now() < moment) {
    }
    step += 2 + writer.kill();

    const io::Checkpoint last = io::load_checkpoint(file);
    ASSERT_GE(last.step, step) << "kill " << i;
    ASSERT_LE(last.step, step + 1) << "kill " << i;
    step = last.step;
    ASSERT_EQ(last.model.size(), 1U);
    const auto values = last.model[0].tensor.to_vector<float>();
    ASSERT_EQ(values, std::vector<float>(kElements, static_cast<float>(step))) << "kill " << i;
    // What was cut short lies beside it, and is in nobody's way.
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
      if (entry.path() == file) continue;
      ++cut_short;
      std::filesystem::remove(entry.path());
    }
  }
  EXPECT_GT(cut_short, 0);
}

}  // namespace checkpoint_kill_test
}  // namespace lockstep
